//! GGML `IQ2_XS`: blocks of 256 values, eight at a time a point of a grid of 512: `value = d·(0.5 + s)/4 · ±point`.
//!
//! Layout: `d: f16 | qs: [u16; 32] | scales: [u8; 8]`, 74 bytes: nine bits of point and seven of signs each; a scale of 4 bits
//! for each 16 values (`block_iq2_xs` in ggml-common.h).

#[cfg(feature = "cube")]
use super::grids::device::{signs_of, two_bit_magnitude};
#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{entry_at, f16_at, nibble_at, short_at, with_sign},
};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    grids::{even_signs, put_eight, two_bits},
    half_at,
};

register_format! {
    /// 2.3125 bits a value.
    Iq2Xs { name: "iq2_xs", tag: "IQ2_XS", ggml_type: 17, block: [256, 74]; device: [two_bits::XS] }
}

impl Unpack<256, 74> for Iq2Xs {
    #[inline(always)]
    fn unpack(bytes: &[u8; 74], values: &mut [f32; 256]) {
        let d = half_at(bytes, 0);
        for l in 0..32 {
            let code = u16::from_le_bytes([bytes[2 + 2 * l], bytes[3 + 2 * l]]);
            let s = bytes[66 + l / 4] >> (l / 2 % 2 * 4) & 15;
            let scale = d * (0.5 + f32::from(s)) * 0.25;
            let (point, signs) = (
                two_bits::XS[usize::from(code & 511)],
                even_signs(u32::from(code >> 9)),
            );
            put_eight(point, signs, scale, &mut values[8 * l..][..8]);
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Iq2Xs {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 74 + 1024;
        let l = start % 256;
        let code = short_at(words, block + 2 + l / 8 * 2);
        let s = nibble_at(words, block + 66 + l / 32, 4 * (l as u32 / 16 % 2));
        let scale = f16_at(words, block) * (f32::cast_from(s) + 0.5) * 0.25;
        let point = entry_at(words, 0, code & 511);
        let signs = signs_of(code >> 9);
        #[unroll]
        for k in 0..8usize {
            let magnitude = two_bit_magnitude(point >> (2 * k as u32));
            values[k] = with_sign(scale * magnitude, (signs >> k as u32) & 1);
        }
    }
}
