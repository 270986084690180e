//! GGML `Q8_0`: blocks of 32 values, an f16 scale and 32 signed bytes: `value = d · q`.
//!
//! Layout: `d: f16 | qs: [i8; 32]`, 34 bytes (`block_q8_0` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{f16_at, signed_at},
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;
use half::f16;

use crate::{
    kernels::{Pack, Unpack, widen_f16},
    register_format,
};

register_format! {
    /// 8.5 bits a value.
    Q8_0 { name: "q8_0", tag: "Q8_0", ggml_type: 8, block: [32, 34], writable; dot: registers; device: [] }
}

impl Unpack<32, 34> for Q8_0 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 34], values: &mut [f32; 32]) {
        let d = Self::unpack_unscaled(bytes, values);
        for value in values {
            *value *= d;
        }
    }

    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; 34], values: &mut [f32; 32]) -> f32 {
        let [d_low, d_high, qs @ ..] = bytes;
        for (value, q) in values.iter_mut().zip(qs) {
            *value = f32::from(q.cast_signed());
        }
        widen_f16(u16::from_le_bytes([*d_low, *d_high]))
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q8_0 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 32 * 34;
        let d = f16_at(words, block);
        #[unroll]
        for k in 0..8usize {
            values[k] = signed_at(words, block + 2 + start % 32 + k) * d;
        }
    }
}

/// `d` = absmax / 127, and each value to the nearest of its multiples (`quantize_row_q8_0_ref` in ggml-quants.c).
impl Pack<32, 34> for Q8_0 {
    fn pack(values: &[f32; 32], bytes: &mut [u8; 34]) {
        let absmax = values
            .iter()
            .fold(0.0_f32, |max, value| max.max(value.abs()));
        let d = absmax / 127.0;
        let inverse = if d == 0.0 { 0.0 } else { d.recip() };
        let [d_low, d_high, qs @ ..] = bytes;
        [*d_low, *d_high] = f16::from_f32(d).to_le_bytes();
        for (q, value) in qs.iter_mut().zip(values) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the quotient is at most 127"
            )]
            let rounded = (value * inverse).round() as i8;
            *q = rounded.cast_unsigned();
        }
    }
}
