//! GGML `IQ3_S`: blocks of 256 values, four at a time a point of a grid of 512: `value = d·(1 + 2s) · ±point`.
//!
//! Layout: `d: f16 | qs: [u8; 64] | qh: [u8; 8] | signs: [u8; 32] | scales: [u8; 4]`, 110 bytes: the ninth bit of point l in
//! bit l mod 8 of `qh` byte l / 8; a scale of 4 bits for each 32 values (`block_iq3_s` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, entry_at, f16_at, nibble_at, with_sign},
};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    grids::{put_four, three_bits},
    half_at,
};

register_format! {
    /// 3.4375 bits a value.
    Iq3S { name: "iq3_s", tag: "IQ3_S", ggml_type: 21, block: [256, 110]; device: [three_bits::S] }
}

impl Unpack<256, 110> for Iq3S {
    #[inline(always)]
    fn unpack(bytes: &[u8; 110], values: &mut [f32; 256]) {
        let d = half_at(bytes, 0);
        for l in 0..64 {
            let high = usize::from(bytes[66 + l / 8] >> (l % 8) & 1);
            let point = three_bits::S[usize::from(bytes[2 + l]) | high << 8];
            let s = bytes[106 + l / 16] >> (l / 8 % 2 * 4) & 15;
            let scale = d * (1.0 + 2.0 * f32::from(s));
            let signs = (bytes[74 + l / 2], l % 2 * 4);
            put_four(point, signs, scale, &ODD, &mut values[4 * l..][..4]);
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Iq3S {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 110 + 1024;
        let l = start % 256;
        let quarter = l / 4;
        let ninths = byte_at(words, block + 66 + l / 32) >> (quarter as u32 % 8);
        let s = nibble_at(words, block + 106 + l / 64, 4 * (l as u32 / 32 % 2));
        let scale = f16_at(words, block) * (f32::cast_from(s) * 2.0 + 1.0);
        let lower = byte_at(words, block + 2 + quarter);
        let upper = byte_at(words, block + 3 + quarter);
        let first = entry_at(words, 0, lower | ((ninths & 1) << 8));
        let second = entry_at(words, 0, upper | ((ninths & 2) << 7));
        let signs = byte_at(words, block + 74 + l / 8);
        #[unroll]
        for k in 0..8usize {
            let point = select(k < 4, first, second);
            let q = (point >> (3 * (k as u32 % 4))) & 7;
            values[k] = with_sign(scale * f32::cast_from(2 * q + 1), (signs >> k as u32) & 1);
        }
    }
}

/// The values of the grid.
static ODD: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];
