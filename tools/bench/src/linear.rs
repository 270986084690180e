//! `[rows, 3072] · [3072, 3072]ᵀ` in every weight format, beside Burn's own product, the bare `gemm` crate
//! and the read bandwidth.
//!
//! The weights rotate through a buffer larger than any cache, so one row meets them cold, as in a model.
//! Ratios are speeds: above 1 this project is the faster one.

use std::{io, time::Duration};

use burn::tensor::{Device, Tensor, TensorData, module};
use bytes::Bytes;
use gemm::{Parallelism, gemm};
use overglaze_quant::{Parts, QuantFormat, QuantizedTensor, formats_by_name, values_bytes};
use serde::Serialize;

use crate::{
    bandwidth::read_all,
    timing::{Run, medians},
};

/// Measures and writes one line per number of rows and format.
///
/// # Errors
/// Where `output` cannot be written.
pub(crate) fn run(output: &mut dyn io::Write) -> io::Result<()> {
    let bench = Bench::new();
    for (num_rows, repetitions) in [(1, 41), (64, 15), (1024, 7)] {
        for figure in bench.figures(num_rows, repetitions) {
            writeln!(output, "{}", serde_json::to_string(&figure)?)?;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Figure {
    bench: &'static str,
    weights: &'static str,
    rows: usize,
    threads: usize,
    ms: f64,
    gflops: f64,
    gbps: f64,
    burn_f32_ms: f64,
    ratio_to_burn_f32: f64,
    gemm_ms: f64,
    ratio_to_gemm: f64,
    bandwidth_gbps: f64,
    fraction_of_bandwidth: f64,
}

struct Bench {
    device: Device,
    memory: Bytes,
    weights: Vec<(&'static dyn QuantFormat, Vec<QuantizedTensor>)>,
    burn_weights: Vec<Tensor<2>>,
    gemm_weights: Vec<Vec<f32>>,
}

impl Bench {
    fn new() -> Self {
        let device = Device::flex();
        let memory = Bytes::from(finite_bytes(MEMORY_BYTES));
        let weights = formats_by_name()
            .into_iter()
            .filter_map(|format| Some((format, rotation(format, &memory)?)))
            .collect();
        let num_copies = MEMORY_BYTES / (WIDTH * WIDTH * size_of::<f32>());
        let dense = || vec![0.01f32; WIDTH * WIDTH];
        let burn_weights = (0..num_copies)
            .map(|_| Tensor::from_data(TensorData::new(dense(), [WIDTH, WIDTH]), &device))
            .collect();
        let gemm_weights = (0..num_copies).map(|_| dense()).collect();
        Self {
            device,
            memory,
            weights,
            burn_weights,
            gemm_weights,
        }
    }

    /// Burn, gemm and the bandwidth first, then every format, all in turns.
    fn figures(&self, num_rows: usize, repetitions: usize) -> Vec<Figure> {
        let values: Vec<f32> = (0..num_rows * WIDTH)
            .map(|i| (i % 97) as f32 / 97.0)
            .collect();
        let data = TensorData::new(values.clone(), [num_rows, WIDTH]);
        let input = Tensor::<2>::from_data(data, &self.device);
        let mut output = vec![0.0; num_rows * WIDTH];
        let mut candidates: Vec<Run<'_>> = vec![
            Box::new(|turn| {
                let weight = in_turn(&self.burn_weights, turn).clone();
                drop(module::linear(input.clone(), weight, None));
            }),
            Box::new(|turn| {
                let weight: &Vec<f32> = in_turn(&self.gemm_weights, turn);
                multiply(&values, weight, &mut output);
            }),
            Box::new(|_| read_all(&self.memory)),
        ];
        for (_, copies) in &self.weights {
            candidates.push(Box::new(|turn| {
                drop(in_turn(copies, turn).linear(input.clone()));
            }));
        }
        let times = medians(&mut candidates, repetitions);
        let peers = [times[0], times[1], times[2]];
        let ours = self.weights.iter().zip(&times[3..]);
        ours.map(|((_, copies), time)| figure(&copies[0], num_rows, *time, peers))
            .collect()
    }
}

fn figure(
    weight: &QuantizedTensor,
    num_rows: usize,
    time: Duration,
    [burn, gemm, read]: [Duration; 3],
) -> Figure {
    let gbps = giga_per_second(weight.num_bytes(), time);
    let bandwidth_gbps = giga_per_second(MEMORY_BYTES, read);
    Figure {
        bench: "linear",
        weights: weight.format().name(),
        rows: num_rows,
        threads: rayon::current_num_threads(),
        ms: time.as_secs_f64() * 1e3,
        gflops: giga_per_second(2 * num_rows * WIDTH * WIDTH, time),
        gbps,
        burn_f32_ms: burn.as_secs_f64() * 1e3,
        ratio_to_burn_f32: burn.as_secs_f64() / time.as_secs_f64(),
        gemm_ms: gemm.as_secs_f64() * 1e3,
        ratio_to_gemm: gemm.as_secs_f64() / time.as_secs_f64(),
        bandwidth_gbps,
        fraction_of_bandwidth: gbps / bandwidth_gbps,
    }
}

fn giga_per_second(amount: usize, time: Duration) -> f64 {
    amount as f64 / time.as_secs_f64() / 1e9
}

/// Weights of `format` side by side in `memory`; nothing for formats of several parts.
fn rotation(format: &'static dyn QuantFormat, memory: &Bytes) -> Option<Vec<QuantizedTensor>> {
    let shape = [WIDTH, WIDTH];
    let num_bytes = values_bytes(format.name(), shape, format.block()?).ok()?;
    let starts = (0..=memory.len() - num_bytes).step_by(num_bytes);
    starts
        .map(|start| {
            let parts = Parts::values(memory.slice(start..start + num_bytes));
            QuantizedTensor::new(format, shape, parts).ok()
        })
        .collect()
}

/// Bytes that are finite numbers of ordinary size in any floating-point format.
fn finite_bytes(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        0x30 + (state >> 28) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn in_turn<T>(copies: &[T], turn: usize) -> &T {
    &copies[turn % copies.len()]
}

/// `output = input · weightᵀ` by the bare `gemm` crate with all threads.
fn multiply(input: &[f32], weight: &[f32], output: &mut [f32]) {
    let num_rows = input.len() / WIDTH;
    assert_eq!(
        (weight.len(), output.len()),
        (WIDTH * WIDTH, num_rows * WIDTH),
        "sizes differ"
    );
    let stride = WIDTH.cast_signed();
    let (output, input, weight) = (output.as_mut_ptr(), input.as_ptr(), weight.as_ptr());
    let threads = Parallelism::Rayon(rayon::current_num_threads());
    #[expect(unsafe_code, reason = "the gemm crate takes pointers")]
    // SAFETY: all three matrices are row-major with `WIDTH` columns, and their sizes were checked above.
    unsafe {
        gemm(
            num_rows, WIDTH, WIDTH, output, 1, stride, false, input, 1, stride, weight, stride, 1,
            0.0, 1.0, false, false, false, threads,
        );
    }
}

const WIDTH: usize = 3072;
/// Several times the last-level cache of the largest desktop processors.
const MEMORY_BYTES: usize = 256 << 20;
