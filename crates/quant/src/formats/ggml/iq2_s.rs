//! GGML `IQ2_S`: blocks of 256 values, eight at a time a point of a grid of 1024: `value = d·(0.5 + s)/4 · ±point`.
//!
//! Layout: `d: f16 | qs: [u8; 32] | signs: [u8; 32] | qh: [u8; 8] | scales: [u8; 8]`, 82 bytes: the upper two bits of four
//! points in a byte of `qh`; a scale of 4 bits for each 16 values (`block_iq2_s` in ggml-common.h).

#[cfg(feature = "cube")]
use super::grids::device::two_bit_magnitude;
#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, entry_at, f16_at, nibble_at, with_sign},
};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    grids::{put_eight, two_bits},
    half_at,
};

register_format! {
    /// 2.5625 bits a value.
    Iq2S { name: "iq2_s", tag: "IQ2_S", ggml_type: 22, block: [256, 82]; device: [two_bits::S] }
}

impl Unpack<256, 82> for Iq2S {
    #[inline(always)]
    fn unpack(bytes: &[u8; 82], values: &mut [f32; 256]) {
        let d = half_at(bytes, 0);
        for l in 0..32 {
            let high = usize::from(bytes[66 + l / 4] >> (l % 4 * 2) & 3);
            let point = two_bits::S[usize::from(bytes[2 + l]) | high << 8];
            let s = bytes[74 + l / 4] >> (l / 2 % 2 * 4) & 15;
            let scale = d * (0.5 + f32::from(s)) * 0.25;
            put_eight(point, bytes[34 + l], scale, &mut values[8 * l..][..8]);
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Iq2S {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 82 + 2048;
        let l = start % 256;
        let eighth = l / 8;
        let high = (byte_at(words, block + 66 + l / 32) >> (2 * (eighth as u32 % 4))) & 3;
        let s = nibble_at(words, block + 74 + l / 32, 4 * (l as u32 / 16 % 2));
        let scale = f16_at(words, block) * (f32::cast_from(s) + 0.5) * 0.25;
        let point = entry_at(words, 0, byte_at(words, block + 2 + eighth) | (high << 8));
        let signs = byte_at(words, block + 34 + eighth);
        #[unroll]
        for k in 0..8usize {
            let magnitude = two_bit_magnitude(point >> (2 * k as u32));
            values[k] = with_sign(scale * magnitude, (signs >> k as u32) & 1);
        }
    }
}
