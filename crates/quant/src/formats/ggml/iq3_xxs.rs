//! GGML `IQ3_XXS`: blocks of 256 values, four at a time a point of a grid of 256: `value = d·(0.5 + s)/2 · ±point`.
//!
//! Layout: `d: f16 | qs: [u8; 64] | scales: [u32; 8]`, 98 bytes: for each 32 values 4 times 7 bits of signs and 4 bits of scale
//! in a `u32` (`block_iq3_xxs` in ggml-common.h).

#[cfg(feature = "cube")]
use super::grids::device::signs_of;
#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, entry_at, f16_at, with_sign, word_at},
};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    grids::{OF_THREE_BITS, even_signs, put_four, three_bits},
    half_at,
};

register_format! {
    /// 3.0625 bits a value.
    Iq3Xxs { name: "iq3_xxs", tag: "IQ3_XXS", ggml_type: 18, block: [256, 98]; device: [three_bits::XXS] }
}

impl Unpack<256, 98> for Iq3Xxs {
    #[inline(always)]
    fn unpack(bytes: &[u8; 98], values: &mut [f32; 256]) {
        let d = half_at(bytes, 0);
        for group in 0..8 {
            let at = 66 + 4 * group;
            let rest = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let scale = d * (0.5 + (rest >> 28) as f32) * 0.5;
            for l in 0..8 {
                let point = three_bits::XXS[usize::from(bytes[2 + 8 * group + l])];
                let signs = (even_signs(rest >> (7 * (l / 2))), l % 2 * 4);
                let values = &mut values[32 * group + 4 * l..][..4];
                put_four(point, signs, scale, &OF_THREE_BITS, values);
            }
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Iq3Xxs {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 98 + 512;
        let l = start % 256;
        let rest = word_at(words, block + 66 + l / 32 * 4);
        let scale = f16_at(words, block) * (f32::cast_from(rest >> 28) + 0.5) * 0.5;
        let first = entry_at(words, 0, byte_at(words, block + 2 + l / 4));
        let second = entry_at(words, 0, byte_at(words, block + 3 + l / 4));
        let signs = signs_of(rest >> (7 * (l as u32 / 8 % 4)));
        #[unroll]
        for k in 0..8usize {
            let point = select(k < 4, first, second);
            let q = (point >> (3 * (k as u32 % 4))) & 7;
            let magnitude = f32::cast_from(8 * q + 4 + select(q == 7, 2u32, 0u32));
            values[k] = with_sign(scale * magnitude, (signs >> k as u32) & 1);
        }
    }
}
