//! What mounted adapters cost: `[rows, 3072]` through a patched linear layer `[3072, 3072]` with none, one, two and
//! four adapters of rank 16, beside the share their multiplications have of the base's, and with one merged into a copy
//! of the weight; and a 3×3 convolution of 320 channels over 64×64 with one and four.
//!
//! Every candidate of one number of rows runs in turns with the others; the overhead is the median of the ratios
//! within one turn.

use std::{io, sync::Arc, time::Duration};

use burn::{
    nn::{LinearConfig, PaddingConfig2d, conv::Conv2dConfig},
    tensor::{Device, Tensor, TensorData},
};
use bytes::Bytes;
use overglaze_core::{Error, PatchedConv2d, PatchedLayer, PatchedLinear, Weight, merge};
use overglaze_patches::{Patch, TensorGroup, registry};
use overglaze_quant::{Parts, QuantizedTensor, format_by_name};
use serde::Serialize;

use crate::{
    swap::{Model, RANK, WIDTH, adapter},
    timing::{Run, in_turns, median, median_ratio},
};

/// Measures and writes one line per base, number of rows and number of adapters.
///
/// # Errors
/// Where `output` cannot be written.
pub(crate) fn run(output: &mut dyn io::Write) -> io::Result<()> {
    for base in BASES {
        for (rows, repetitions) in [(1, 201), (64, 41), (1024, 61), (4096, 7)] {
            for figure in figures(base, rows, repetitions).map_err(io::Error::other)? {
                writeln!(output, "{}", serde_json::to_string(&figure)?)?;
            }
        }
    }
    for figure in conv_figures() {
        writeln!(output, "{}", serde_json::to_string(&figure)?)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Figure {
    bench: &'static str,
    base: &'static str,
    rows: usize,
    loras: usize,
    /// Whether they are merged into a copy of the weight.
    is_direct: bool,
    rank: usize,
    unpatched_ms: f64,
    patched_ms: f64,
    /// Time over the unpatched layer's, as a fraction of it.
    overhead: f64,
    /// Multiplications of the adapters over those of the base.
    arithmetic_share: f64,
}

fn conv_figures() -> Vec<Figure> {
    let device = Device::flex();
    let input = Tensor::<4>::ones([1, CHANNELS, SIDE, SIDE], &device);
    let conv = Conv2dConfig::new([CHANNELS, CHANNELS], [3, 3])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_bias(false)
        .init(&device);
    let counts = [0, 1, 4];
    let layers = counts.map(|loras| {
        let mut layer = PatchedConv2d::from(conv.clone());
        for index in 0..loras {
            let patch = lora([CHANNELS, CHANNELS, 3, 3], &device);
            layer
                .add_patch(&format!("lora {index}"), patch, 0.5)
                .expect("the LoRA has the layer's shape");
        }
        layer
    });
    let mut candidates: Vec<Run<'_>> = Vec::new();
    for layer in &layers {
        candidates.push(Box::new(|_| drop(layer.forward(input.clone()))));
    }
    let times = in_turns(&mut candidates, 21);
    let patched = counts.iter().zip(&times).skip(1);
    let share = |loras: usize| (RANK * loras * 10) as f64 / (CHANNELS * 9) as f64;
    patched
        .map(|(loras, patched)| {
            figure(
                "burn-conv3x3",
                SIDE * SIDE,
                *loras,
                [&times[0], patched],
                share(*loras),
            )
        })
        .collect()
}

fn figure(
    base: &'static str,
    rows: usize,
    loras: usize,
    [unpatched, patched]: [&[Duration]; 2],
    arithmetic_share: f64,
) -> Figure {
    let milliseconds = |times: &[Duration]| median(times.to_vec()).as_secs_f64() * 1e3;
    Figure {
        bench: "sidecar",
        base,
        rows,
        loras,
        is_direct: false,
        rank: RANK,
        unpatched_ms: milliseconds(unpatched),
        patched_ms: milliseconds(patched),
        overhead: median_ratio(patched, unpatched) - 1.0,
        arithmetic_share,
    }
}

fn figures(base: &'static str, rows: usize, repetitions: usize) -> Result<Vec<Figure>, Error> {
    let device = Device::flex();
    let values = (0..rows * WIDTH).map(|index| (index % 97) as f32 / 97.0);
    let input = Tensor::<2>::from_data(
        TensorData::new(values.collect::<Vec<_>>(), [rows, WIDTH]),
        &device,
    );
    let mut layers = COUNTS.map(|loras| layer(base, loras, &device)).to_vec();
    layers.push(merged(layer(base, 0, &device))?);
    let mut candidates: Vec<Run<'_>> = Vec::new();
    for layer in &layers {
        candidates.push(Box::new(|_| drop(layer.forward(input.clone()))));
    }
    let times = in_turns(&mut candidates, repetitions);
    let patched = COUNTS.iter().zip(&times).skip(1);
    let share = |loras: usize| (2 * RANK * loras) as f64 / WIDTH as f64;
    let by_sidecar = patched
        .map(|(loras, patched)| figure(base, rows, *loras, [&times[0], patched], share(*loras)));
    let mut figures: Vec<_> = by_sidecar.collect();
    let direct = figure(base, rows, 1, [&times[0], &times[COUNTS.len()]], 0.0);
    figures.push(Figure {
        is_direct: true,
        ..direct
    });
    Ok(figures)
}

/// `layer` with one adapter merged into a copy of its weight.
fn merged(layer: PatchedLinear) -> Result<PatchedLinear, Error> {
    let set = adapter(1, &Device::flex())?;
    let mut model = Model::of(vec![layer], Arc::default())?;
    merge(&mut model, &[("merged", &set, 0.5)])?;
    Ok(model.into_first().expect("one layer in, one layer out"))
}

fn layer(base: &str, loras: usize, device: &Device) -> PatchedLinear {
    let mut layer = match format_by_name(base) {
        Ok(format) => {
            let block = format.block().expect("the bases here are block formats");
            // Every byte 0x30: a small finite number in every format.
            let bytes = Bytes::from(vec![0x30; WIDTH * WIDTH / block.len * block.bytes]);
            let packed = QuantizedTensor::new(format, [WIDTH, WIDTH], Parts::values(bytes))
                .expect("the buffer has the shape's bytes");
            PatchedLinear::from_weights(Weight::Packed(packed), None, device.clone())
        }
        Err(_) => LinearConfig::new(WIDTH, WIDTH)
            .with_bias(false)
            .init(device)
            .into(),
    };
    for index in 0..loras {
        layer
            .add_patch(
                &format!("lora {index}"),
                lora([WIDTH, WIDTH, 1, 1], device),
                0.5,
            )
            .expect("the LoRA has the layer's shape");
    }
    layer
}

/// A LoRA for a weight of these axes; a linear layer's last two are 1.
fn lora([d_output, d_input, height, width]: [usize; 4], device: &Device) -> Arc<dyn Patch> {
    let tensor =
        |shape: [usize; 4]| TensorData::new(vec![0.001_f32; shape.iter().product()], shape);
    let tensors = [
        ("lora_up.weight", tensor([d_output, RANK, 1, 1])),
        ("lora_down.weight", tensor([RANK, d_input, height, width])),
    ];
    let tensors = tensors.map(|(key, data)| (String::from(key), data));
    let group = TensorGroup::new("layer", tensors.into());
    registry::load(group, device).expect("the factors fit")
}

/// Formats of the base by name, and Burn's own layer.
const BASES: [&str; 4] = ["burn-f32", "f32", "bf16", "q8_0"];
const COUNTS: [usize; 4] = [0, 1, 2, 4];
const CHANNELS: usize = 320;
const SIDE: usize = 64;
