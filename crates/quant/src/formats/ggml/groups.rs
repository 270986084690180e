//! Blocks of 256 values in groups, whose scales and minima are codes themselves.

#[cfg(feature = "cube")]
use cubecl::prelude::*;
use half::f16;

#[cfg(feature = "cube")]
use crate::cube::bits::byte_at;

use crate::kernels::fit;

use super::{code, half_at};

/// Codes of the scales and minima of `N` groups of a block: group g has the scale `d · scales[g]` and the minimum
/// `dmin · minima[g]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups<const N: usize> {
    pub(super) d: f16,
    pub(super) dmin: f16,
    pub(super) scales: [u8; N],
    pub(super) minima: [u8; N],
}

impl<const N: usize> Groups<N> {
    /// The groups of `values` for codes from 0 to `max_code`, with scales and minima from 0 to `max_scale`.
    pub(super) fn affine(values: &[f32; 256], max_code: f32, max_scale: f32) -> Self {
        let mut fitted = [[0.0; 2]; N];
        for (fitted, group) in fitted.iter_mut().zip(values.chunks_exact(256 / N)) {
            *fitted = fit::affine(group, max_code);
        }
        let [d, dmin] = [0, 1].map(|index| {
            let largest = fitted
                .iter()
                .fold(0.0_f32, |max, fitted| max.max(fitted[index]));
            f16::from_f32(largest / max_scale)
        });
        Self {
            d,
            dmin,
            scales: fitted.map(|[scale, _]| code(scale, d.to_f32(), 0.0, max_scale)),
            minima: fitted.map(|[_, minimum]| code(minimum, dmin.to_f32(), 0.0, max_scale)),
        }
    }

    /// The code from 0 to `max` nearest to `value` in a group.
    pub(super) fn code(&self, group: usize, value: f32, max: f32) -> u8 {
        let scale = self.d.to_f32() * f32::from(self.scales[group]);
        let minimum = self.dmin.to_f32() * f32::from(self.minima[group]);
        code(value + minimum, scale, 0.0, max)
    }
}

impl Groups<8> {
    /// Writes `d`, `dmin` and the scales and minima in six bits each, as [`lines_of_header`] reads them.
    pub(super) fn put_header(&self, bytes: &mut [u8]) {
        bytes[..2].copy_from_slice(&self.d.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.dmin.to_le_bytes());
        let packed = &mut bytes[4..16];
        for j in 0..4 {
            let ([low, high], [low_minimum, high_minimum]) = (
                [self.scales[j], self.scales[j + 4]],
                [self.minima[j], self.minima[j + 4]],
            );
            packed[j] = low | high >> 4 << 6;
            packed[j + 4] = low_minimum | high_minimum >> 4 << 6;
            packed[j + 8] = high & 15 | high_minimum << 4;
        }
    }
}

/// Scales and minima of the groups in a block of `Q4_K` or `Q5_K`: those of groups 0 to 3 are the lower six bits of their
/// bytes; of groups 4 to 7 the lower four bits stand in the last four bytes and the upper two above those of group g - 4
/// (`get_scale_min_k4` in ggml-quants.c).
#[inline(always)]
fn six_bits(packed: &[u8; 12]) -> [[u8; 8]; 2] {
    let (mut scales, mut minima) = ([0; 8], [0; 8]);
    for g in 0..4 {
        let (scale, minimum, lower) = (packed[g], packed[4 + g], packed[8 + g]);
        (scales[g], minima[g]) = (scale & 63, minimum & 63);
        scales[4 + g] = (lower & 15) | (scale >> 6) << 4;
        minima[4 + g] = (lower >> 4) | (minimum >> 6) << 4;
    }
    [scales, minima]
}

/// The lines of the groups in a block of `Q4_K` or `Q5_K`, which begins with `d: f16 | dmin: f16` and [`six_bits`].
#[inline(always)]
pub(super) fn lines_of_header(header: &[u8; 16], scales: &mut [f32; 8], starts: &mut [f32; 8]) {
    let (d, dmin) = (half_at(header, 0), half_at(header, 2));
    let [factors, minima] = six_bits(header.last_chunk().expect("there are 16"));
    for group in 0..8 {
        scales[group] = d * f32::from(factors[group]);
        starts[group] = -(dmin * f32::from(minima[group]));
    }
}

/// The common factor and the signed scales, from `-max_scale` to `max_scale - 1`, of 16 groups for codes from `-max_code`
/// to `max_code - 1`.
pub(super) fn symmetric_groups(
    values: &[f32; 256],
    max_code: f32,
    max_scale: f32,
) -> (f16, [i8; 16]) {
    let mut scales = [0.0_f32; 16];
    for (scale, group) in scales.iter_mut().zip(values.chunks_exact(16)) {
        *scale = fit::symmetric_scale(group, max_code);
    }
    let largest = scales.iter().fold(0.0_f32, |largest, scale| {
        match scale.abs() > largest.abs() {
            true => *scale,
            false => largest,
        }
    });
    // The negative end reaches further.
    let d = f16::from_f32(-largest / max_scale);
    let codes = scales.map(|scale| {
        let ratio = if d.to_f32() == 0.0 {
            0.0
        } else {
            scale / d.to_f32()
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is clamped to what eight bits hold"
        )]
        let code = ratio.round_ties_even().clamp(-max_scale, max_scale - 1.0) as i8;
        code
    });
    (d, codes)
}

/// The code of a group's scale in a header whose codes begin at byte `codes`, as [`lines_of_header`] reads them.
#[cfg(feature = "cube")]
#[cube]
pub(super) fn scale_code(words: &[u32], codes: usize, group: usize) -> f32 {
    let mut code = byte_at(words, codes + group) & 63;
    if group >= 4 {
        let low = byte_at(words, codes + group + 4) & 15;
        code = low | ((byte_at(words, codes + group - 4) >> 6) << 4);
    }
    f32::cast_from(code)
}

/// The code of a group's minimum, likewise.
#[cfg(feature = "cube")]
#[cube]
pub(super) fn minimum_code(words: &[u32], codes: usize, group: usize) -> f32 {
    let mut code = byte_at(words, codes + group + 4) & 63;
    if group >= 4 {
        code =
            (byte_at(words, codes + group + 4) >> 4) | ((byte_at(words, codes + group) >> 6) << 4);
    }
    f32::cast_from(code)
}
