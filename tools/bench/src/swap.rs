//! Mounting, re-weighting and unmounting one adapter on 500 layers of `[3072, 3072]` bf16, rank 16, with
//! 1, 10 and 50 adapters mounted already; and the first forward pass after a mount beside the second.
//!
//! The layers share one buffer of weights, which no swap may touch; every layer has patches of its own.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use burn::tensor::{DType, Device, Tensor, TensorData};
use bytes::Bytes;
use overglaze_core::{
    Error, FrozenWeight, LayerTree, LayerWeights, NameTable, PatchedLayer, PatchedLinear, Traffic,
    Weight, mount, reweight, unmount,
};
use overglaze_patches::PatchSet;
use overglaze_quant::{Parts, QuantizedTensor, format_by_name};
use serde::Serialize;

use crate::timing::median;

/// Measures and writes one line per number of mounted adapters.
///
/// # Errors
/// Where `output` cannot be written, or the model cannot be built.
pub(crate) fn run(output: &mut dyn io::Write) -> io::Result<()> {
    let mut model = Model::new().map_err(io::Error::other)?;
    let set = adapter(NUM_LAYERS, &model.device).map_err(io::Error::other)?;
    for adapters in [1, 10, 50] {
        let figure = figure(&mut model, &set, adapters).map_err(io::Error::other)?;
        writeln!(output, "{}", serde_json::to_string(&figure)?)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Figure {
    bench: &'static str,
    layers: usize,
    rank: usize,
    adapters_mounted: usize,
    mount_us: f64,
    reweight_us: f64,
    unmount_us: f64,
    base_bytes_moved: u64,
    unpatched_forward_ms: f64,
    first_forward_ms: f64,
    second_forward_ms: f64,
}

fn figure(model: &mut Model, set: &PatchSet, adapters: usize) -> Result<Figure, Error> {
    let names: Vec<String> = (1..adapters)
        .map(|index| format!("resident-{index}"))
        .collect();
    for name in &names {
        mount(model, name, set, 1.0)?;
    }
    let moved = |model: &Model| model.traffic.moved_bytes() + model.traffic.written_bytes();
    let before = moved(model);
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..REPETITIONS {
        times[0].push(timed(|| mount(model, "swapped", set, 1.0).map(drop))?);
        times[1].push(timed(|| reweight(model, "swapped", 0.5))?);
        times[2].push(timed(|| unmount(model, "swapped"))?);
    }
    let base_bytes_moved = moved(model) - before;
    for name in &names {
        unmount(model, name)?;
    }
    let unpatched = timed(|| model.forward())?.min(timed(|| model.forward())?);
    mount(model, "swapped", set, 1.0)?;
    let (first, second) = (timed(|| model.forward())?, timed(|| model.forward())?);
    unmount(model, "swapped")?;
    let [mounting, reweighting, unmounting] = times.map(|times| micros(median(times)));
    Ok(Figure {
        bench: "swap",
        layers: NUM_LAYERS,
        rank: RANK,
        adapters_mounted: adapters,
        mount_us: mounting,
        reweight_us: reweighting,
        unmount_us: unmounting,
        base_bytes_moved,
        unpatched_forward_ms: micros(unpatched) / 1e3,
        first_forward_ms: micros(first) / 1e3,
        second_forward_ms: micros(second) / 1e3,
    })
}

fn timed(work: impl FnOnce() -> Result<(), Error>) -> Result<Duration, Error> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Layers one after the other.
pub(crate) struct Model {
    layers: Vec<(String, PatchedLinear)>,
    names: NameTable,
    device: Device,
    traffic: Arc<Traffic>,
}

impl Model {
    /// 500 equal ones, which share one buffer of weights.
    pub(crate) fn new() -> Result<Self, Error> {
        let (device, traffic) = (Device::flex(), Arc::<Traffic>::default());
        let format = format_by_name("bf16").expect("bf16 is always linked");
        // 0x3A80 is 2^-10: a product of 3072 of them stays small through 500 layers.
        let bytes = Bytes::from([0x80, 0x3A].repeat(WIDTH * WIDTH));
        let packed = QuantizedTensor::new(format, [WIDTH, WIDTH], Parts::values(bytes))
            .expect("the buffer has the shape's bytes");
        let weights = LayerWeights {
            weight: Weight::Packed(packed),
            bias: None,
        };
        let frozen = FrozenWeight::Resident(Arc::new(weights));
        let layer = PatchedLinear::from_frozen(frozen, false, device, Arc::clone(&traffic));
        Self::of(vec![layer; NUM_LAYERS], traffic)
    }

    /// The `layers`, which count their bytes in `traffic`.
    pub(crate) fn of(layers: Vec<PatchedLinear>, traffic: Arc<Traffic>) -> Result<Self, Error> {
        let mut names = NameTable::default();
        let paths = (0..layers.len()).map(path);
        let layers: Vec<_> = paths.zip(layers).collect();
        layers
            .iter()
            .try_for_each(|(path, _)| names.add_layer(path, WIDTH))?;
        Ok(Self {
            layers,
            names,
            device: Device::flex(),
            traffic,
        })
    }

    /// The first layer.
    pub(crate) fn into_first(self) -> Option<PatchedLinear> {
        self.layers.into_iter().map(|(_, layer)| layer).next()
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// One row through every layer; every layer gets the same input, so that nothing grows.
    fn forward(&self) -> Result<(), Error> {
        let input = Tensor::<2>::ones([1, WIDTH], &self.device);
        for (_, layer) in &self.layers {
            layer.try_forward(input.clone())?;
        }
        Ok(())
    }
}

impl LayerTree for Model {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        for (path, layer) in &self.layers {
            visitor(path, layer);
        }
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        for (path, layer) in &mut self.layers {
            visitor(path, layer);
        }
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

/// A LoRA of rank 16 on every one of the first `num_layers` layers, read as from a file.
pub(crate) fn adapter(num_layers: usize, device: &Device) -> Result<PatchSet, Error> {
    let matrix = |rows: usize, columns: usize| {
        TensorData::new(vec![0.001_f32; rows * columns], [rows, columns]).convert_dtype(DType::BF16)
    };
    let (down, up) = (matrix(RANK, WIDTH), matrix(WIDTH, RANK));
    let tensors = (0..num_layers).flat_map(|index| {
        let key = |part: &str| format!("transformer.{}.lora_{part}.weight", path(index));
        [(key("A"), down.clone()), (key("B"), up.clone())]
    });
    Ok(PatchSet::from_tensors("rank-16", tensors, None, device)?)
}

fn path(index: usize) -> String {
    format!("blocks.{index}.proj")
}

pub(crate) const NUM_LAYERS: usize = 500;
pub(crate) const WIDTH: usize = 3072;
pub(crate) const RANK: usize = 16;
const REPETITIONS: usize = 21;
