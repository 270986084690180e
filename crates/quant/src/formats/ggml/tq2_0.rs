//! GGML `TQ2_0`: blocks of 256 values of three levels in 2 bits each: `value = d · (q - 1)`.
//!
//! Layout: `qs: [u8; 64] | d: f16`, 66 bytes: value 128·h + 32·j + l in bits 2j of byte 32·h + l (`block_tq2_0` in
//! ggml-common.h).

use crate::{kernels::Coded, register_format};

use super::{
    bits::{pairs, put},
    half_at,
};

register_format! {
    /// 2.0625 bits a value.
    Tq2_0 { name: "tq2_0", tag: "TQ2_0", ggml_type: 35, block: [256, 66]; dot: codes }
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
