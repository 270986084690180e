//! SDNQ weights on a device: codes and scales in a kernel, the low-rank part and the turning as matrix products after it.
//!
//! Words: the [`NUM_NUMBERS`] of `numbers`, the number each of 256 codes stands for, and where the parts of [`PARTS`] begin.

use std::sync::Arc;

use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use cubecl::prelude::*;

use crate::{
    DeviceKernels, DeviceWords, Part, Parts,
    cube::{
        DecodeEight, Kernels,
        bits::{byte_at, number_at},
        kind_of, numbers,
    },
};

use super::{
    codes::WIDE,
    layout::{LAYOUT, Layout},
    number::Decoder,
    scales::{Names, SCALE, ZERO_POINT},
    svd::{DOWN, UP},
    turn::turn,
};

/// The words of a validated weight of `shape` `[d_output, d_input]`.
pub(super) fn words([d_output, d_input]: [usize; 2], parts: &Parts) -> Option<DeviceWords> {
    let layout = Layout::of_validated(parts);
    let count = |number: usize| u32::try_from(number).ok();
    let is_wide = parts.get(Part::VALUES)?.tag == WIDE;
    let row_scales = match layout.has_one_scale {
        true => 0,
        false => layout.row_scales(),
    };
    let mut numbers = vec![
        count(d_input)?,
        layout.number.bits(),
        if is_wide { 8 } else { layout.number.bits() },
        if layout.is_transposed {
            count(d_output)?
        } else {
            0
        },
        count(d_input / layout.num_groups)?,
        count(layout.num_positions)?,
        count(layout.num_levels())?,
        count(row_scales)?,
        u32::from(layout.has_zero_points()),
    ];
    numbers.extend(packing(SCALE, parts, layout.has_scale_codebook));
    numbers.extend(packing(ZERO_POINT, parts, layout.has_scale_codebook));
    let decoder = layout.number.decoder();
    numbers.extend((0..=u8::MAX).map(|code| {
        let number = match &decoder {
            Decoder::Whole { flipped, smallest } => f32::from(code ^ flipped) + smallest,
            Decoder::Table(table) => table[usize::from(code)],
        };
        number.to_bits()
    }));
    let layout_of_words = DeviceWords::of_parts(Kernels::<Sdnq>::shared(), &numbers, &PARTS, parts);
    let low_rank = match parts.get(UP) {
        Some(up) => Some(LowRank {
            up: (layout_of_words.start(UP)?, kind_of(&up.tag)?),
            down: (
                layout_of_words.start(DOWN)?,
                kind_of(&parts.get(DOWN)?.tag)?,
            ),
            rank: up.scalars()?.len().checked_div(d_output)?,
            is_transposed: layout.has_transposed_svd,
            is_conv: layout.is_conv,
            rounding: match up.tag.as_str() {
                "BF16" => DType::BF16,
                "F16" => DType::F16,
                _ => DType::F32,
            },
        }),
        None => None,
    };
    if low_rank.is_none() && layout.turned_len <= 1 {
        return Some(layout_of_words);
    }
    Some(layout_of_words.with_kernels(Arc::new(Finished {
        codes: Kernels::<Sdnq>::shared(),
        low_rank,
        turned_len: layout.turned_len,
    })))
}

/// How scales or zero points are kept: the type of the numbers, 0 to 3 for as they are, scaled, scaled from a zero point, or
/// places in a list, and the types of what scales them.
fn packing(names: Names, parts: &Parts, is_list: bool) -> [u32; 4] {
    let kind = |name| parts.get(name).and_then(|part| kind_of(&part.tag));
    let packing = match (kind(names.scale), kind(names.zero_point)) {
        (None, _) => 0,
        (Some(_), _) if is_list => 3,
        (Some(_), None) => 1,
        (Some(_), Some(_)) => 2,
    };
    let [numbers, scale, zero_point] =
        [names.numbers, names.scale, names.zero_point].map(|name| kind(name).unwrap_or(0));
    [numbers, packing, scale, zero_point]
}

/// Numbers before the 256 of the codes.
const NUM_NUMBERS: usize = 17;
/// Where the parts' beginnings stand.
const STARTS: usize = NUM_NUMBERS + 256;
const PARTS: [&str; 10] = [
    Part::VALUES,
    SCALE.numbers,
    SCALE.scale,
    SCALE.zero_point,
    ZERO_POINT.numbers,
    ZERO_POINT.scale,
    ZERO_POINT.zero_point,
    UP,
    DOWN,
    LAYOUT,
];

struct Sdnq;

#[cube]
impl DecodeEight for Sdnq {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let d_input = words[0] as usize;
        let bits = words[1];
        let pack = 4 * words[STARTS] as usize + start / 8 * words[2] as usize;
        let d_output = words[3] as usize;
        let num_positions = words[5] as usize;
        let num_levels = words[6] as usize;
        #[unroll]
        for k in 0..8usize {
            let row = (start + k) / d_input;
            let column = (start + k) % d_input;
            let mut code = code_of_pack(words, pack, bits, k);
            if d_output > 0 {
                code = byte_at(words, 4 * words[STARTS] as usize + column * d_output + row);
            }
            let group = column / words[4] as usize;
            let list = row * words[7] as usize + group * num_positions * num_levels;
            let position = column % num_positions;
            if num_levels > 1 {
                values[k] = scale_at(
                    words,
                    list + code as usize * num_positions + position,
                    9usize,
                    STARTS + 1,
                );
            } else {
                let number = f32::reinterpret(words[NUM_NUMBERS + code as usize]);
                let scale = scale_at(words, list + position, 9usize, STARTS + 1);
                if words[8] == 0 {
                    values[k] = number * scale;
                } else {
                    let zero_point = scale_at(words, list + position, 13usize, STARTS + 4);
                    values[k] = fma(number, scale, zero_point);
                }
            }
        }
    }
}

/// Scale or zero point `index`, whose packing stands from word `packing` on and whose parts' beginnings from word `starts` on.
#[cube]
fn scale_at(words: &[u32], index: usize, packing: usize, starts: usize) -> f32 {
    let number = number_at(words, words[starts] as usize, index, words[packing]);
    let how = words[packing + 1];
    let mut scale = number;
    if how == 3 {
        scale = number_at(
            words,
            words[starts + 1] as usize,
            u32::cast_from(number) as usize,
            words[packing + 2],
        );
    } else if how > 0 {
        let factor = number_at(
            words,
            words[starts + 1] as usize,
            0usize,
            words[packing + 2],
        );
        scale = number * factor;
        if how == 2 {
            let zero_point = number_at(
                words,
                words[starts + 2] as usize,
                0usize,
                words[packing + 3],
            );
            scale = fma(number, factor, zero_point);
        }
    }
    scale
}

/// Code `k` of the eight of `bits` bits that begin at byte `pack`; see [`Codes`](super::codes::Codes).
#[cube]
fn code_of_pack(words: &[u32], pack: usize, bits: u32, #[comptime] k: usize) -> u32 {
    let mut code = 0u32;
    if bits == 1 {
        code = (byte_at(words, pack) >> k as u32) & 1;
    } else if bits == 2 {
        code = (byte_at(words, pack + k / 4) >> (2 * (k as u32 % 4))) & 3;
    } else if bits == 3 {
        if comptime!(k < 6) {
            code = (byte_at(words, pack + k % 3) >> (3 * (k as u32 / 3))) & 7;
        } else {
            let third = byte_at(words, pack + 2) >> (k as u32 - 2);
            code = (byte_at(words, pack + k - 6) >> 6) | (third & 4);
        }
    } else if bits == 4 {
        code = (byte_at(words, pack + k / 2) >> (4 * (k as u32 % 2))) & 15;
    } else if bits == 5 {
        if comptime!(k < 5) {
            code = byte_at(words, pack + k) & 31;
        } else if comptime!(k < 7) {
            let upper = byte_at(words, pack + k - 2) >> 2;
            code = (byte_at(words, pack + k - 5) >> 5) | (upper & 24);
        } else {
            let fourth = (byte_at(words, pack + 4) >> 4) & 8;
            let fifth = (byte_at(words, pack + 3) >> 3) & 16;
            code = (byte_at(words, pack + 2) >> 5) | fourth | fifth;
        }
    } else if bits == 6 {
        let half = pack + k / 4 * 3;
        if comptime!(k % 4 < 3) {
            code = byte_at(words, half + k % 4) & 63;
        } else {
            let middle = (byte_at(words, half + 1) >> 4) & 12;
            let upper = (byte_at(words, half) >> 2) & 48;
            code = (byte_at(words, half + 2) >> 6) | middle | upper;
        }
    } else if bits == 7 {
        if comptime!(k < 7) {
            code = byte_at(words, pack + k) & 127;
        } else {
            #[unroll]
            for index in 0..7usize {
                code |= (byte_at(words, pack + index) >> 7) << (6 - index as u32);
            }
        }
    } else {
        code = byte_at(words, pack + k);
    }
    code
}

/// A weight with more to do once its codes are scaled.
#[derive(Debug)]
struct Finished {
    codes: Arc<dyn DeviceKernels>,
    low_rank: Option<LowRank>,
    turned_len: usize,
}

/// Two factors; see [`Svd`](super::svd::Svd).
#[derive(Debug)]
struct LowRank {
    /// The word at which the numbers begin, and their type.
    up: (usize, u32),
    down: (usize, u32),
    rank: usize,
    is_transposed: bool,
    is_conv: bool,
    rounding: DType,
}

impl DeviceKernels for Finished {
    fn run_on(&self, device: &Device) -> bool {
        let rounding = self.low_rank.as_ref().map(|low_rank| low_rank.rounding);
        self.codes.run_on(device) && rounding.is_none_or(|dtype| device.supports_dtype(dtype))
    }

    fn dequantize(&self, words: Tensor<1, Int>, shape: [usize; 2], dtype: FloatDType) -> Tensor<2> {
        let mut values = self.codes.dequantize(words.clone(), shape, FloatDType::F32);
        if let Some(low_rank) = &self.low_rank {
            values = low_rank.add(&words, values);
        }
        if self.turned_len > 1 {
            let len = self.turned_len;
            let matrix = Tensor::from_data(turning(len), &values.device());
            let runs = values.reshape([shape[0] * shape[1] / len, len]);
            values = runs.matmul(matrix).reshape(shape);
        }
        values.cast(dtype)
    }

    fn linear(&self, words: Tensor<1, Int>, input: Tensor<2>, d_output: usize) -> Tensor<2> {
        let weight = self.dequantize(words, [d_output, input.dims()[1]], input.dtype().into());
        input.matmul(weight.transpose())
    }
}

impl LowRank {
    /// `values` with the product added, rounded where SDNQ rounds.
    fn add(&self, words: &Tensor<1, Int>, values: Tensor<2>) -> Tensor<2> {
        let [d_output, d_input] = values.dims();
        let factor = |(start, kind), [num_rows, num_columns]: [usize; 2]| {
            let shape = match self.is_transposed {
                true => [num_columns, num_rows],
                false => [num_rows, num_columns],
            };
            let factor = numbers(words.clone(), (start, kind), shape);
            match self.is_transposed {
                true => factor.transpose(),
                false => factor,
            }
        };
        let up = factor(self.up, [d_output, self.rank]);
        let down = factor(self.down, [self.rank, d_input]);
        let round = |values: Tensor<2>| values.cast(self.rounding).cast(DType::F32);
        let product = up.matmul(down);
        match self.is_conv {
            true => values + round(product),
            false => round(round(values) + product),
        }
    }
}

/// What rows of `len` values are multiplied with, from the right, to turn them.
fn turning(len: usize) -> TensorData {
    let mut rows = vec![0.0; len * len];
    for (index, row) in rows.chunks_exact_mut(len).enumerate() {
        row[index] = 1.0;
        turn(row);
    }
    TensorData::new(rows, [len, len])
}
