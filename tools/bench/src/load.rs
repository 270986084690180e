//! A user's own Burn module (8 × `Linear(2048, 2048)`, f32) from a safetensors file: parameters assigned
//! from the mapped file, beside initializing the module and then copying the file into it.

use std::{error::Error, fs, io, path::Path, time::Instant};

use burn::{
    module::{Module, Param},
    nn::{Linear, LinearConfig},
    tensor::{DType, Device, Tensor, TensorData},
};
use overglaze_core::load_module;
use serde::Serialize;

use crate::timing::median;

/// Measures and writes one line.
///
/// # Errors
/// Where `output` or the temporary file cannot be written.
pub(crate) fn run(output: &mut dyn io::Write) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("module.safetensors");
    write_file(&file)?;
    let (mut assigned, mut copied) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        assign(&file).map_err(io::Error::other)?;
        assigned.push(start.elapsed());
        let start = Instant::now();
        initialize_and_copy(&file).map_err(io::Error::other)?;
        copied.push(start.elapsed());
    }
    let (assigned, copied) = (median(assigned).as_secs_f64(), median(copied).as_secs_f64());
    let figure = Figure {
        bench: "load",
        bytes: fs::metadata(&file)?.len(),
        load_module_ms: assigned * 1e3,
        init_and_copy_ms: copied * 1e3,
        ratio: copied / assigned,
    };
    writeln!(output, "{}", serde_json::to_string(&figure)?)
}

#[derive(Serialize)]
struct Figure {
    bench: &'static str,
    bytes: u64,
    load_module_ms: f64,
    init_and_copy_ms: f64,
    ratio: f64,
}

#[derive(Module, Debug)]
struct Stack {
    layers: Vec<Linear>,
}

impl Stack {
    fn new(device: &Device) -> Self {
        let config = LinearConfig::new(WIDTH, WIDTH).with_bias(false);
        Self {
            layers: (0..NUM_LAYERS).map(|_| config.init(device)).collect(),
        }
    }
}

fn assign(file: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let device = Device::flex();
    let source = overglaze_core::open(file)?;
    let (stack, _) = load_module(Stack::new(&device), &*source, &device)?;
    assert_eq!(
        stack.layers.len(),
        NUM_LAYERS,
        "the module keeps its layers"
    );
    Ok(())
}

/// What one does without this project: let Burn initialize, read the file, convert, assign.
fn initialize_and_copy(file: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let device = Device::flex();
    let mut stack = Stack::new(&device);
    for layer in &stack.layers {
        // Looking at a lazy parameter initializes it, as a first forward pass or `println!` would.
        layer.weight.val();
    }
    let bytes = fs::read(file)?;
    let file = safetensors::SafeTensors::deserialize(&bytes)?;
    for (index, layer) in stack.layers.iter_mut().enumerate() {
        let view = file.tensor(&name(index))?;
        let data = TensorData::from_bytes_vec(view.data().to_vec(), [WIDTH, WIDTH], DType::F32);
        layer.weight = Param::from_tensor(Tensor::<2>::from_data(data, &device).transpose());
    }
    Ok(())
}

fn write_file(path: &Path) -> io::Result<()> {
    let values = vec![0_u8; WIDTH * WIDTH * 4];
    let tensors = (0..NUM_LAYERS).map(|index| {
        let view = safetensors::tensor::TensorView::new(
            safetensors::Dtype::F32,
            vec![WIDTH, WIDTH],
            &values,
        )
        .expect("the bytes are those of the shape");
        (name(index), view)
    });
    safetensors::serialize_to_file(tensors, None, path).map_err(io::Error::other)
}

fn name(index: usize) -> String {
    format!("layers.{index}.weight")
}

const NUM_LAYERS: usize = 8;
const WIDTH: usize = 2048;
const REPETITIONS: usize = 5;
