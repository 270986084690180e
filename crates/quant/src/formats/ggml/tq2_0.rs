//! GGML `TQ2_0`: blocks of 256 values of three levels in 2 bits each: `value = d · (q - 1)`.
//!
//! Layout: `qs: [u8; 64] | d: f16`, 66 bytes: value 128·h + 32·j + l in bits 2j of byte 32·h + l (`block_tq2_0` in
//! ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, f16_at},
};
use crate::{kernels::Coded, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    bits::{pairs, put},
    half_at,
};

register_format! {
    /// 2.0625 bits a value.
    Tq2_0 { name: "tq2_0", tag: "TQ2_0", ggml_type: 35, block: [256, 66]; dot: codes; device: [] }
}

impl Coded<256, 66, 8> for Tq2_0 {
    #[inline(always)]
    fn codes(bytes: &[u8; 66], codes: &mut [i8; 256]) {
        for half in 0..2 {
            let quants: &[u8; 32] = bytes[32 * half..].first_chunk().expect("a block is longer");
            for (field, fields) in pairs(quants).iter().enumerate() {
                put(fields, 1, &mut codes[128 * half + 32 * field..]);
            }
        }
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 66], scales: &mut [f32; 8], _starts: &mut [f32; 8]) {
        scales.fill(half_at(bytes, 64));
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Tq2_0 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 66;
        let l = start % 256;
        let d = f16_at(words, block + 64);
        let shift = 2 * (l as u32 / 32 % 4);
        let quants = block + l / 128 * 32 + l % 32;
        #[unroll]
        for k in 0..8usize {
            let code = (byte_at(words, quants + k) >> shift) & 3;
            values[k] = d * (f32::cast_from(code) - 1.0);
        }
    }
}
