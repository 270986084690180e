//! GGML `TQ2_0`: blocks of 256 values of three levels in 2 bits each: `value = d · (q - 1)`.
//!
//! Layout: `qs: [u8; 64] | d: f16`, 66 bytes: value 128·h + 32·j + l in bits 2j of byte 32·h + l (`block_tq2_0` in
//! ggml-common.h).

use crate::{kernels::Unpack, register_format};

use super::half_at;

register_format! {
    /// 2.0625 bits a value.
    Tq2_0 { name: "tq2_0", tag: "TQ2_0", ggml_type: 35, block: [256, 66] }
}

impl Unpack<256, 66> for Tq2_0 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 66], values: &mut [f32; 256]) {
        let d = Self::unpack_unscaled(bytes, values);
        values.iter_mut().for_each(|value| *value *= d);
    }

    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; 66], values: &mut [f32; 256]) -> f32 {
        for run in 0..8 {
            let (first, shift) = (run / 4 * 32, run % 4 * 2);
            for l in 0..32 {
                values[32 * run + l] = f32::from(bytes[first + l] >> shift & 3) - 1.0;
            }
        }
        half_at(bytes, 64)
    }
}
