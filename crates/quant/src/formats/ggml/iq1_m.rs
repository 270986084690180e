//! GGML `IQ1_M`: blocks of 256 values, eight at a time a point of a grid of 2048: `value = d·(2s + 1) · (point ± 1/8)`.
//!
//! Layout: `qs: [u8; 32] | qh: [u8; 16] | scales: [u16; 4]`, 56 bytes: for each eight values the upper three bits of the point
//! and the sign of the eighth in half a byte of `qh`; three bits of scale for each 16 values, four in a `u16`, whose upper four
//! bits are a quarter of the f16 `d` (`block_iq1_m` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, entry_at, f16_value, nibble_at, short_at},
};
use crate::{
    kernels::{Unpack, widen_f16},
    register_format,
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::grids::{one_bit, put_levels};

register_format! {
    /// 1.75 bits a value.
    Iq1M { name: "iq1_m", tag: "IQ1_M", ggml_type: 29, block: [256, 56]; device: [one_bit::POINTS] }
}

impl Unpack<256, 56> for Iq1M {
    #[inline(always)]
    fn unpack(bytes: &[u8; 56], values: &mut [f32; 256]) {
        let scales =
            [0, 1, 2, 3].map(|at| u16::from_le_bytes([bytes[48 + 2 * at], bytes[49 + 2 * at]]));
        let quarters = [0, 1, 2, 3].map(|at| scales[at] >> 12 << (4 * at));
        let d = widen_f16(quarters[0] | quarters[1] | quarters[2] | quarters[3]);
        for l in 0..32 {
            let half = bytes[32 + l / 2] >> (l % 2 * 4) & 15;
            let s = scales[l / 8] >> (l / 2 % 4 * 3) & 7;
            let scale = d * (2.0 * f32::from(s) + 1.0);
            let delta = if half >> 3 == 0 { 0.125 } else { -0.125 };
            let point = one_bit::POINTS[usize::from(bytes[l]) | usize::from(half & 7) << 8];
            put_levels(point, delta, scale, &mut values[8 * l..][..8]);
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Iq1M {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 56 + 4096;
        let l = start % 256;
        let mut d = 0u32;
        #[unroll]
        for quarter in 0..4usize {
            let scales = short_at(words, block + 48 + 2 * quarter);
            d |= (scales >> 12) << (4 * quarter as u32);
        }
        let half = nibble_at(words, block + 32 + l / 16, 4 * (l as u32 / 8 % 2));
        let s = (short_at(words, block + 48 + l / 64 * 2) >> (3 * (l as u32 / 16 % 4))) & 7;
        let scale = f16_value(d) * (f32::cast_from(s) * 2.0 + 1.0);
        let delta = select(half >> 3 == 0, 0.125f32, -0.125f32);
        let point = entry_at(words, 0, byte_at(words, block + l / 8) | ((half & 7) << 8));
        #[unroll]
        for k in 0..8usize {
            let level = f32::cast_from((point >> (2 * k as u32)) & 3) - 1.0;
            values[k] = scale * (level + delta);
        }
    }
}
