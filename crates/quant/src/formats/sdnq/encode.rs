//! Writing weights as sdnq's quantizer does with its usual settings: `int8` with a scale for groups of 1024 values, `uint4`
//! with a scale and a zero point for groups of 64.
//!
//! Without zero points `scale = max|w| / 127` and `q = w / scale`; with them `zero_point = min w`,
//! `scale = (max w − min w) / 15` and `q = (w − zero_point) / scale`. Codes are rounded to the nearest, ties to even.
//! A row that is no whole number of groups has fewer and longer ones (`sdnq_quantize_layer_weight` of sdnq 0.2.8).

use bytes::Bytes;

use crate::{Encode, Part, Parts, QuantFormat, StoredTensor};

use super::{
    config::CONFIG,
    layout::Layout,
    number::Number,
    scales::{SCALE as SCALES, ZERO_POINT as ZERO_POINTS},
};

const SCALE: &str = SCALES.numbers;
const ZERO_POINT: &str = ZERO_POINTS.numbers;

/// Integers of 8 bits around 0, in this format.
#[derive(Debug)]
pub(super) struct Int8(pub(super) &'static dyn QuantFormat);

/// Integers of 4 bits from the least value of a group on, in this format.
#[derive(Debug)]
pub(super) struct Uint4(pub(super) &'static dyn QuantFormat);

impl Encode for Int8 {
    fn format(&self) -> &'static dyn QuantFormat {
        self.0
    }

    fn encoding(&self) -> &'static str {
        "sdnq_int8"
    }

    fn takes(&self, shape: &[usize]) -> bool {
        // A group without values has no scale.
        shape.len() == 2 && !shape.contains(&0)
    }

    fn encode(&self, values: &[f32], shape: [usize; 2]) -> Parts {
        let groups = Groups::of(shape[1], 1024);
        let (mut codes, mut scales) = (Vec::with_capacity(values.len()), Vec::new());
        for group in values.chunks_exact(groups.len) {
            let largest = group
                .iter()
                .fold(0.0_f32, |max, value| max.max(value.abs()));
            let scale = largest / 127.0;
            codes.extend(group.iter().map(|value| signed(ratio(*value, scale))));
            scales.push(scale);
        }
        Parts::new(vec![
            part(Part::VALUES, "I8", codes.into()),
            part(SCALE, "F32", floats(&scales)),
            groups.layout(Number::Int { bits: 8 }, "int8"),
        ])
    }

    fn stored_as(&self, name: &str, shape: &[usize]) -> Vec<StoredTensor> {
        let groups = Groups::of(shape[1], 1024);
        let stored = groups.shape(shape);
        let num_values = shape.iter().product();
        vec![
            groups.tensor(name, SCALE, shape),
            StoredTensor::values(name, "I8", &stored, num_values),
        ]
    }

    fn file_text(&self, kept: &[&str]) -> Option<(&'static str, String)> {
        Some((CONFIG, config(self.0, "int8", kept)))
    }
}

impl Encode for Uint4 {
    fn format(&self) -> &'static dyn QuantFormat {
        self.0
    }

    fn encoding(&self) -> &'static str {
        "sdnq_uint4"
    }

    fn takes(&self, shape: &[usize]) -> bool {
        // Two codes are a byte, and a single scale would not tell how many rows they are.
        let num_values = shape.iter().product::<usize>();
        shape.len() == 2 && shape[0] > 1 && num_values > 0 && num_values.is_multiple_of(2)
    }

    fn encode(&self, values: &[f32], shape: [usize; 2]) -> Parts {
        let groups = Groups::of(shape[1], 64);
        let mut codes = Vec::with_capacity(values.len());
        let (mut scales, mut zero_points) = (Vec::new(), Vec::new());
        for group in values.chunks_exact(groups.len) {
            let least = group.iter().copied().fold(f32::INFINITY, f32::min);
            let most = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let scale = (most - least) / 15.0;
            codes.extend(
                group
                    .iter()
                    .map(|value| four_bits(ratio(value - least, scale))),
            );
            scales.push(scale);
            zero_points.push(least);
        }
        let (pairs, _) = codes.as_chunks::<2>();
        let packed: Bytes = pairs.iter().map(|[low, high]| low | high << 4).collect();
        Parts::new(vec![
            part(Part::VALUES, "U8", packed),
            part(SCALE, "F32", floats(&scales)),
            part(ZERO_POINT, "F32", floats(&zero_points)),
            groups.layout(Number::Uint { bits: 4 }, "uint4"),
        ])
    }

    fn stored_as(&self, name: &str, shape: &[usize]) -> Vec<StoredTensor> {
        let groups = Groups::of(shape[1], 64);
        let num_bytes = shape.iter().product::<usize>() / 2;
        vec![
            groups.tensor(name, SCALE, shape),
            groups.tensor(name, ZERO_POINT, shape),
            StoredTensor::values(name, "U8", &[num_bytes], num_bytes),
        ]
    }

    fn file_text(&self, kept: &[&str]) -> Option<(&'static str, String)> {
        Some((CONFIG, config(self.0, "uint4", kept)))
    }
}

/// The groups of a row.
#[derive(Clone, Copy)]
struct Groups {
    count: usize,
    /// Values of each.
    len: usize,
}

impl Groups {
    /// Groups of `len` values, or the next longer ones of which a row of `d_input` is a whole number.
    fn of(d_input: usize, len: usize) -> Self {
        let fitting = (2..=d_input / len).rev();
        let count = fitting
            .into_iter()
            .find(|count| d_input.is_multiple_of(*count));
        let count = count.unwrap_or(1);
        Self {
            count,
            len: (d_input / count).max(1),
        }
    }

    /// The shape that sdnq gives values of logical `shape`.
    fn shape(self, shape: &[usize]) -> Vec<usize> {
        match self.count {
            1 => shape.to_vec(),
            count => vec![shape[0], count, self.len],
        }
    }

    /// The tensor of the numbers `part`, one a group, of the weight `name`.
    fn tensor(self, name: &str, part: &'static str, shape: &[usize]) -> StoredTensor {
        let module = name.strip_suffix("weight").unwrap_or(name);
        let shape = match self.count {
            1 => vec![shape[0], 1],
            count => vec![shape[0], count, 1],
        };
        StoredTensor::floats(format!("{module}{part}"), part, &shape)
    }

    fn layout(self, number: Number, type_name: &str) -> Part {
        let layout = Layout {
            num_groups: self.count,
            ..Layout::of_rows(number)
        };
        layout.to_part(type_name)
    }
}

/// What sdnq's loader reads as `quantization_config.json`.
fn config(format: &dyn QuantFormat, weights_dtype: &str, kept: &[&str]) -> String {
    let modules = kept
        .iter()
        .map(|name| name.strip_suffix(".weight").unwrap_or(name));
    serde_json::json!({
        "quant_method": format.name(),
        "weights_dtype": weights_dtype,
        "group_size": 0,
        "dequantize_fp32": true,
        "quant_conv": false,
        "quant_embedding": false,
        "use_quantized_matmul": false,
        "use_svd": false,
        "use_codebook": false,
        "use_hadamard": false,
        "add_skip_keys": false,
        "modules_to_not_convert": modules.collect::<Vec<_>>(),
    })
    .to_string()
}

fn ratio(value: f32, scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { value / scale }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the argument is at most 127 in size, but for rounding"
)]
fn signed(ratio: f32) -> u8 {
    (ratio.round_ties_even() as i8).cast_unsigned()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the argument is between 0 and 15, but for rounding"
)]
fn four_bits(ratio: f32) -> u8 {
    (ratio.round_ties_even() as u8).min(15)
}

fn part(name: &'static str, tag: &str, bytes: Bytes) -> Part {
    Part {
        name,
        tag: tag.into(),
        shape: Vec::new(),
        bytes,
    }
}

fn floats(values: &[f32]) -> Bytes {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.collect()
}
