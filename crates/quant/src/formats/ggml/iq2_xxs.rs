//! GGML `IQ2_XXS`: blocks of 256 values, eight at a time a point of a grid of 256: `value = d·(0.5 + s)/4 · ±point`.
//!
//! Layout: `d: f16 | qs: [u8; 64]`, 66 bytes: for each 32 values four bytes of points, then 4 times 7 bits of signs and 4 bits
//! of scale in a `u32` (`block_iq2_xxs` in ggml-common.h).

#[cfg(feature = "cube")]
use super::grids::device::{signs_of, two_bit_magnitude};
#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, entry_at, f16_at, with_sign, word_at},
};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    grids::{even_signs, put_eight, two_bits},
    half_at,
};

register_format! {
    /// 2.0625 bits a value.
    Iq2Xxs { name: "iq2_xxs", tag: "IQ2_XXS", ggml_type: 16, block: [256, 66]; device: [two_bits::XXS] }
}

impl Unpack<256, 66> for Iq2Xxs {
    #[inline(always)]
    fn unpack(bytes: &[u8; 66], values: &mut [f32; 256]) {
        let d = half_at(bytes, 0);
        for group in 0..8 {
            let at = 2 + 8 * group;
            let rest =
                u32::from_le_bytes([bytes[at + 4], bytes[at + 5], bytes[at + 6], bytes[at + 7]]);
            let scale = d * (0.5 + (rest >> 28) as f32) * 0.25;
            for l in 0..4 {
                let point = two_bits::XXS[usize::from(bytes[at + l])];
                let signs = even_signs(rest >> (7 * l));
                put_eight(point, signs, scale, &mut values[32 * group + 8 * l..][..8]);
            }
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Iq2Xxs {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 66 + 512;
        let l = start % 256;
        let group = block + 2 + l / 32 * 8;
        let eighth = l % 32 / 8;
        let rest = word_at(words, group + 4);
        let scale = f16_at(words, block) * (f32::cast_from(rest >> 28) + 0.5) * 0.25;
        let point = entry_at(words, 0, byte_at(words, group + eighth));
        let signs = signs_of(rest >> (7 * eighth as u32));
        #[unroll]
        for k in 0..8usize {
            let magnitude = two_bit_magnitude(point >> (2 * k as u32));
            values[k] = with_sign(scale * magnitude, (signs >> k as u32) & 1);
        }
    }
}
