//! Every weight format: decoding, and `[rows, 3072] · [d_output, 3072]ᵀ` from packed bytes, beside f32 and the read
//! bandwidth of the same turns.
//!
//! Copies of a weight rotate through more memory than any cache holds, so that one row meets them cold, as in a model.
//! `speed_to_f32` is above 1 where the packed product is the faster one. The error is that of the product against the
//! decoded weight in f64. Names of formats behind `quant` measure these alone.

use std::{env, io, time::Duration};

use burn::tensor::{Device, Tensor, TensorData};
use bytes::Bytes;
use overglaze_quant::{Part, Parts, QuantFormat, QuantizedTensor, formats_by_name, values_bytes};
use serde::Serialize;

use crate::{
    bandwidth::read_all,
    timing::{Run, in_turns, median, median_ratio},
};

/// Measures every format and writes one line per figure.
///
/// # Errors
/// Where `output` cannot be written.
pub(crate) fn run(output: &mut dyn io::Write) -> io::Result<()> {
    let names: Vec<String> = env::args().skip(2).collect();
    let is_wanted = |format: &&dyn QuantFormat| {
        names.is_empty() || names.iter().any(|name| name == format.name())
    };
    for d_output in [3072, 12288] {
        let bench = Bench::new(d_output);
        for format in formats_by_name().into_iter().filter(is_wanted) {
            let Some(copies) = copies(format, d_output) else {
                continue;
            };
            if d_output == 3072 {
                writeln!(output, "{}", serde_json::to_string(&decoding(&copies))?)?;
            }
            for (num_rows, repetitions) in ROWS {
                let figure = bench.figure(&copies, num_rows, repetitions);
                writeln!(output, "{}", serde_json::to_string(&figure)?)?;
            }
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Decoding {
    bench: &'static str,
    weights: &'static str,
    bits_per_value: f64,
    /// GB of f32 a second into a buffer that stays in the cache, one thread.
    gbps_cached: f64,
    /// The same of a whole weight into fresh places, one thread.
    gbps: f64,
}

#[derive(Serialize)]
struct Figure {
    bench: &'static str,
    weights: &'static str,
    d_output: usize,
    d_input: usize,
    rows: usize,
    threads: usize,
    ms: f64,
    /// GB of packed bytes a second.
    gbps: f64,
    bandwidth_gbps: f64,
    f32_ms: f64,
    speed_to_f32: f64,
    rms_error: f64,
}

struct Bench {
    device: Device,
    memory: Bytes,
    plain: Vec<QuantizedTensor>,
}

impl Bench {
    fn new(d_output: usize) -> Self {
        let format = overglaze_quant::format_by_tag("F32").expect("it is compiled in");
        Self {
            device: Device::flex(),
            memory: Bytes::from(vec![1; MEMORY_BYTES]),
            plain: copies(format, d_output).expect("it has blocks"),
        }
    }

    fn figure(&self, copies: &[QuantizedTensor], num_rows: usize, repetitions: usize) -> Figure {
        let weight = &copies[0];
        let [d_output, d_input] = weight.shape();
        let values: Vec<f32> = (0..num_rows * d_input)
            .map(|index| (index % 97) as f32 / 97.0 - 0.5)
            .collect();
        let data = TensorData::new(values.clone(), [num_rows, d_input]);
        let input = Tensor::<2>::from_data(data, &self.device);
        let product = |weights: &[QuantizedTensor], turn: usize| {
            drop(weights[turn % weights.len()].linear(input.clone()));
        };
        let mut candidates: Vec<Run<'_>> = vec![
            Box::new(|turn| product(&self.plain, turn)),
            Box::new(|turn| product(copies, turn)),
            Box::new(|_| read_all(&self.memory)),
        ];
        let times = in_turns(&mut candidates, repetitions);
        let speed_to_f32 = median_ratio(&times[0], &times[1]);
        let [plain, packed, read] = [0, 1, 2].map(|index| median(times[index].clone()));
        Figure {
            bench: "quant",
            weights: weight.format().name(),
            d_output,
            d_input,
            rows: num_rows,
            threads: rayon::current_num_threads(),
            ms: packed.as_secs_f64() * 1e3,
            gbps: giga_per_second(weight.num_bytes(), packed),
            bandwidth_gbps: giga_per_second(MEMORY_BYTES, read),
            f32_ms: plain.as_secs_f64() * 1e3,
            speed_to_f32,
            rms_error: rms_error(weight, &values, num_rows),
        }
    }
}

fn decoding(copies: &[QuantizedTensor]) -> Decoding {
    let weight = &copies[0];
    let [d_output, d_input] = weight.shape();
    let mut values = vec![0.0; d_output * d_input];
    let tile = ..CACHED_ROWS * d_input;
    let mut cached = vec![0.0; CACHED_ROWS * d_input];
    let mut candidates: Vec<Run<'_>> = vec![
        Box::new(|_| {
            for first in (0..d_output).step_by(CACHED_ROWS) {
                weight.decode_rows(first..first + CACHED_ROWS, &mut cached[tile]);
            }
        }),
        Box::new(|_| weight.decode_rows(0..d_output, &mut values)),
    ];
    let times = in_turns(&mut candidates, 5);
    let num_bytes = d_output * d_input * size_of::<f32>();
    let [cached, whole] =
        [0, 1].map(|index| giga_per_second(num_bytes, median(times[index].clone())));
    Decoding {
        bench: "decode",
        weights: weight.format().name(),
        bits_per_value: weight.num_bytes() as f64 * 8.0 / (d_output * d_input) as f64,
        gbps_cached: cached,
        gbps: whole,
    }
}

/// Root mean square of the product's error over that of the product, for some of the weight's rows.
fn rms_error(weight: &QuantizedTensor, input: &[f32], num_rows: usize) -> f64 {
    let [d_output, d_input] = weight.shape();
    let mut output = vec![0.0; num_rows * d_output];
    weight.linear_into(input, &mut output);
    let (mut squared_error, mut squared) = (0.0, 0.0);
    let mut row_values = vec![0.0; d_input];
    for column in (0..d_output).step_by(d_output / 16) {
        weight.decode_rows(column..column + 1, &mut row_values);
        for (row, input) in input.chunks_exact(d_input).enumerate().take(16) {
            let products = row_values.iter().zip(input);
            let expected: f64 = products.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            let error = f64::from(output[row * d_output + column]) - expected;
            squared_error += error * error;
            squared += expected * expected;
        }
    }
    (squared_error / squared).sqrt()
}

/// Weights `[d_output, 3072]` of ordinary values side by side in memory; nothing for formats that only others write.
fn copies(format: &'static dyn QuantFormat, d_output: usize) -> Option<Vec<QuantizedTensor>> {
    let shape = [d_output, D_INPUT];
    let parts = match (format.encoders().first(), format.block()) {
        (Some(encoder), _) => encoder.encode(&ordinary_values(d_output * D_INPUT), shape),
        (None, Some(block)) => {
            let num_bytes = values_bytes(format.name(), shape, block).ok()?;
            Parts::values(finite_bytes(num_bytes).into())
        }
        (None, None) => return None,
    };
    let num_copies = (MEMORY_BYTES / parts.num_bytes()).max(2);
    let copy = |_| {
        let parts = parts.iter().map(|part| Part {
            bytes: Bytes::copy_from_slice(&part.bytes),
            ..part.clone()
        });
        QuantizedTensor::new(format, shape, Parts::new(parts.collect())).ok()
    };
    (0..num_copies).map(copy).collect()
}

/// Between -1 and 1, of every size.
fn ordinary_values(len: usize) -> Vec<f32> {
    let bytes = finite_bytes(len);
    let value = |byte: u8| (f32::from(byte) - 55.5) / 8.0;
    bytes.into_iter().map(value).collect()
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

fn giga_per_second(amount: usize, time: Duration) -> f64 {
    amount as f64 / time.as_secs_f64() / 1e9
}

const D_INPUT: usize = 3072;
/// Numbers of input rows, and of turns for each.
const ROWS: [(usize, usize); 4] = [(1, 21), (8, 15), (64, 9), (1024, 3)];
/// Rows whose f32 values are 256 KiB about.
const CACHED_ROWS: usize = 24;
/// Several times the last-level cache of the largest desktop processors.
const MEMORY_BYTES: usize = 128 << 20;
