//! GGML `IQ1_S`: blocks of 256 values, eight at a time a point of a grid of 2048: `value = d·(2s + 1) · (point ± 1/8)`.
//!
//! Layout: `d: f16 | qs: [u8; 32] | qh: [u16; 8]`, 50 bytes: for each 32 values the upper three bits of four points, three bits
//! of scale and the sign of the eighth in a `u16` (`block_iq1_s` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, entry_at, f16_at, short_at},
};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    grids::{one_bit, put_levels},
    half_at,
};

register_format! {
    /// 1.5625 bits a value.
    Iq1S { name: "iq1_s", tag: "IQ1_S", ggml_type: 19, block: [256, 50]; device: [one_bit::POINTS] }
}

impl Unpack<256, 50> for Iq1S {
    #[inline(always)]
    fn unpack(bytes: &[u8; 50], values: &mut [f32; 256]) {
        let d = half_at(bytes, 0);
        for group in 0..8 {
            let rest = u16::from_le_bytes([bytes[34 + 2 * group], bytes[35 + 2 * group]]);
            let scale = d * (2.0 * f32::from(rest >> 12 & 7) + 1.0);
            let delta = if rest >> 15 == 0 { 0.125 } else { -0.125 };
            for l in 0..4 {
                let high = usize::from(rest >> (3 * l) & 7);
                let point = one_bit::POINTS[usize::from(bytes[2 + 4 * group + l]) | high << 8];
                put_levels(point, delta, scale, &mut values[32 * group + 8 * l..][..8]);
            }
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Iq1S {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 50 + 4096;
        let l = start % 256;
        let rest = short_at(words, block + 34 + l / 32 * 2);
        let scale = f16_at(words, block) * (f32::cast_from((rest >> 12) & 7) * 2.0 + 1.0);
        let delta = select(rest >> 15 == 0, 0.125f32, -0.125f32);
        let high = (rest >> (3 * (l as u32 / 8 % 4))) & 7;
        let point = entry_at(words, 0, byte_at(words, block + 2 + l / 8) | (high << 8));
        #[unroll]
        for k in 0..8usize {
            let level = f32::cast_from((point >> (2 * k as u32)) & 3) - 1.0;
            values[k] = scale * (level + delta);
        }
    }
}
