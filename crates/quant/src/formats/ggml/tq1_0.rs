//! GGML `TQ1_0`: blocks of 256 values of three levels, five to a byte: `value = d · (q - 1)`.
//!
//! Layout: `qs: [u8; 48] | qh: [u8; 4] | d: f16`, 54 bytes. A byte is a fraction of 256: times 3 for each digit, whose value
//! is what overflows. The first 32 bytes hold values 0 to 159 (digit n of byte l: value 32·n + l), the next 16 values 160 to
//! 239, the last 4 values 240 to 255 with four digits (`block_tq1_0` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, f16_at},
};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::half_at;

register_format! {
    /// 1.6875 bits a value.
    Tq1_0 { name: "tq1_0", tag: "TQ1_0", ggml_type: 34, block: [256, 54]; device: [] }
}

impl Unpack<256, 54> for Tq1_0 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 54], values: &mut [f32; 256]) {
        let d = Self::unpack_unscaled(bytes, values);
        values.iter_mut().for_each(|value| *value *= d);
    }

    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; 54], values: &mut [f32; 256]) -> f32 {
        for (digit, power) in POWERS.into_iter().enumerate() {
            for l in 0..32 {
                values[32 * digit + l] = level(bytes[l], power);
            }
            for l in 0..16 {
                values[160 + 16 * digit + l] = level(bytes[32 + l], power);
            }
        }
        for (digit, power) in POWERS.into_iter().take(4).enumerate() {
            for l in 0..4 {
                values[240 + 4 * digit + l] = level(bytes[48 + l], power);
            }
        }
        half_at(bytes, 52)
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Tq1_0 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 54;
        let l = start % 256;
        let d = f16_at(words, block + 52);
        let mut first = block + l % 32;
        let mut digit = l / 32;
        if l >= 160 {
            first = block + 32 + l % 16;
            digit = (l - 160) / 16;
        }
        #[unroll]
        for k in 0..8usize {
            let mut at = first + k;
            let mut place = digit;
            if l >= 240 {
                at = block + 48 + (l + k) % 4;
                place = (l + k - 240) / 4;
            }
            let mut power = 1u32;
            for _ in 0..place {
                power *= 3;
            }
            let fraction = (byte_at(words, at) * power) & 255;
            values[k] = (f32::cast_from((fraction * 3) >> 8) - 1.0) * d;
        }
    }
}

/// The digit at `power` of a byte, less one.
#[inline(always)]
fn level(byte: u8, power: u8) -> f32 {
    let fraction = byte.wrapping_mul(power);
    f32::from((u16::from(fraction) * 3) >> 8) - 1.0
}

const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
