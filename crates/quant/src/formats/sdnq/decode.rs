//! Rows of a weight out of its parts.
//!
//! `value = number · scale`, or with a zero point `number · scale + zero_point` in one rounding, as torch's `addcmul`
//! rounds it; or the number the code is the place of. To that the low-rank part is added, and the sum is turned. But for
//! roundings of the low-rank part it is all f32, whatever type sdnq would have computed in (`dequantize_weight` of sdnq 0.2.8).

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use crate::{Part, kernels::WeightRows};

use super::{
    codes::{Codes, WIDE},
    layout::Layout,
    number::Decoder,
    scales::{SCALE, Scales, ZERO_POINT},
    svd::Svd,
    turn::turn,
};

/// Decodes rows of a validated matrix into `values`, `[rows, d_input]`.
pub(super) fn decode(rows: &WeightRows<'_>, values: &mut [f32]) {
    let (parts, d_input) = (rows.parts(), rows.d_input());
    if values.is_empty() {
        return;
    }
    let layout = Layout::of_validated(parts);
    let tag = parts.get(Part::VALUES).map_or("", |part| &part.tag);
    let codes = Codes {
        bits: layout.number.bits(),
        is_wide: tag == WIDE,
        bytes: parts.bytes(Part::VALUES),
    };
    let d_output = codes.num_codes() / d_input;
    let weight = Weight {
        decoder: layout.number.decoder(),
        scales: Scales::new(SCALE, parts, layout.has_scale_codebook)
            .expect("a validated sdnq weight has scales"),
        zero_points: layout
            .has_zero_points()
            .then(|| Scales::new(ZERO_POINT, parts, layout.has_scale_codebook))
            .flatten(),
        svd: Svd::of(parts, [d_output, d_input], &layout),
        d_output,
        codes,
        layout,
        d_input,
    };
    Arch::new().dispatch(DecodeRows {
        weight: &weight,
        rows: rows.rows(),
        values,
    });
}

/// A matrix `[d_output, d_input]`.
struct Weight<'a> {
    codes: Codes<'a>,
    decoder: Decoder,
    layout: Layout,
    scales: Scales<'a>,
    zero_points: Option<Scales<'a>>,
    svd: Option<Svd<'a>>,
    d_output: usize,
    d_input: usize,
}

struct DecodeRows<'a, 'b> {
    weight: &'a Weight<'a>,
    rows: Range<usize>,
    values: &'b mut [f32],
}

impl WithSimd for DecodeRows<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self {
            weight,
            rows,
            values,
        } = self;
        let d_input = weight.d_input;
        let rows_at_once = (CODES_AT_ONCE / d_input).max(1);
        let mut buffers = Buffers {
            codes: vec![0; rows_at_once.min(rows.len()) * d_input],
            scales: Vec::new(),
            zero_points: Vec::new(),
        };
        let chunks = values.chunks_mut(rows_at_once * d_input);
        for (start, values) in rows.step_by(rows_at_once).zip(chunks) {
            let num_rows = values.len() / d_input;
            weight.read_codes(start..start + num_rows, &mut buffers.codes);
            for (index, values) in values.chunks_exact_mut(d_input).enumerate() {
                weight.decode_row::<S>(start + index, index, &mut buffers, values);
            }
        }
    }
}

struct Buffers {
    /// `[rows, d_input]`.
    codes: Vec<u8>,
    scales: Vec<f32>,
    zero_points: Vec<f32>,
}

impl Weight<'_> {
    #[inline(always)]
    fn read_codes(&self, rows: Range<usize>, codes: &mut [u8]) {
        let codes = &mut codes[..rows.len() * self.d_input];
        if !self.layout.is_transposed {
            return self.codes.unpack(rows.start * self.d_input, codes);
        }
        let columns = self.codes.bytes.chunks_exact(self.d_output);
        for (column, bytes) in columns.enumerate() {
            for (row, byte) in bytes[rows.clone()].iter().enumerate() {
                codes[row * self.d_input + column] = *byte;
            }
        }
    }

    /// Decodes row `row`, of which the codes are number `index` of those that were read.
    #[inline(always)]
    fn decode_row<S: Simd>(
        &self,
        row: usize,
        index: usize,
        buffers: &mut Buffers,
        values: &mut [f32],
    ) {
        let num_scales = self.layout.row_scales();
        let first = if self.layout.has_one_scale {
            0
        } else {
            row * num_scales
        };
        self.scales
            .read(first..first + num_scales, &mut buffers.scales);
        if let Some(zero_points) = &self.zero_points {
            zero_points.read(first..first + num_scales, &mut buffers.zero_points);
        }
        let codes = &buffers.codes[index * self.d_input..][..self.d_input];
        let (scales, zero_points) = (&buffers.scales, &buffers.zero_points);
        if self.layout.has_codebook {
            self.look_up(codes, scales, values);
        } else {
            match &self.decoder {
                Decoder::Whole { flipped, smallest } => {
                    let number = |code: u8| f32::from(code ^ flipped) + smallest;
                    self.scale::<S>(codes, number, [scales, zero_points], values);
                }
                Decoder::Table(table) => {
                    let number = |code: u8| table[usize::from(code)];
                    self.scale::<S>(codes, number, [scales, zero_points], values);
                }
            }
        }
        if let Some(svd) = &self.svd {
            svd.add(row, values);
        }
        let len = self.layout.turned_len;
        if len > 1 {
            values.chunks_exact_mut(len).for_each(turn);
        }
    }

    #[inline(always)]
    fn scale<S: Simd>(
        &self,
        codes: &[u8],
        number: impl Fn(u8) -> f32 + Copy,
        [scales, zero_points]: [&[f32]; 2],
        values: &mut [f32],
    ) {
        let Layout {
            num_groups,
            num_positions,
            ..
        } = self.layout;
        let group_len = self.d_input / num_groups;
        let groups = values
            .chunks_exact_mut(group_len)
            .zip(codes.chunks_exact(group_len));
        for (group, (values, codes)) in groups.enumerate() {
            let own = group * num_positions..(group + 1) * num_positions;
            let channels = values.chunks_exact_mut(channel_len(num_positions, group_len));
            let channels = channels.zip(codes.chunks_exact(channel_len(num_positions, group_len)));
            for (values, codes) in channels {
                let scales = &scales[own.clone()];
                match zero_points.get(own.clone()) {
                    Some(zero_points) => {
                        scale_asymmetric::<S>(codes, number, [scales, zero_points], values);
                    }
                    None => scale_symmetric(codes, number, scales, values),
                }
            }
        }
    }

    #[inline(always)]
    fn look_up(&self, codes: &[u8], lists: &[f32], values: &mut [f32]) {
        let num_positions = self.layout.num_positions;
        let group_len = self.d_input / self.layout.num_groups;
        let list_len = num_positions * self.layout.num_levels();
        let groups = values
            .chunks_exact_mut(group_len)
            .zip(codes.chunks_exact(group_len));
        for ((values, codes), list) in groups.zip(lists.chunks_exact(list_len)) {
            for (index, (value, code)) in values.iter_mut().zip(codes).enumerate() {
                *value = list[usize::from(*code) * num_positions + index % num_positions];
            }
        }
    }
}

/// Values that are scaled in one loop: all of a group where they have one scale, else those of a channel.
#[inline(always)]
fn channel_len(num_positions: usize, group_len: usize) -> usize {
    if num_positions == 1 {
        group_len
    } else {
        num_positions
    }
}

/// Values of one channel, each with its scale, or all with one.
#[inline(always)]
fn scale_symmetric(codes: &[u8], number: impl Fn(u8) -> f32, scales: &[f32], values: &mut [f32]) {
    if let [scale] = scales {
        for (value, code) in values.iter_mut().zip(codes) {
            *value = number(*code) * scale;
        }
        return;
    }
    for ((value, code), scale) in values.iter_mut().zip(codes).zip(scales) {
        *value = number(*code) * scale;
    }
}

#[inline(always)]
fn scale_asymmetric<S: Simd>(
    codes: &[u8],
    number: impl Fn(u8) -> f32,
    [scales, zero_points]: [&[f32]; 2],
    values: &mut [f32],
) {
    if let ([scale], [zero_point]) = (scales, zero_points) {
        for (value, code) in values.iter_mut().zip(codes) {
            *value = add_product::<S>(number(*code), *scale, *zero_point);
        }
        return;
    }
    let scales = scales.iter().zip(zero_points);
    for ((value, code), (scale, zero_point)) in values.iter_mut().zip(codes).zip(scales) {
        *value = add_product::<S>(number(*code), *scale, *zero_point);
    }
}

/// `a · b + sum` in one rounding, but for ties of a second one on machines that have no such instruction.
#[inline(always)]
fn add_product<S: Simd>(a: f32, b: f32, sum: f32) -> f32 {
    if S::IS_SCALAR {
        #[expect(clippy::cast_possible_truncation, reason = "this is the rounding")]
        let sum = (f64::from(a) * f64::from(b) + f64::from(sum)) as f32;
        sum
    } else {
        a.mul_add(b, sum)
    }
}

/// Codes that are unpacked before they are scaled: they stay in the first-level cache.
const CODES_AT_ONCE: usize = 16 << 10;
