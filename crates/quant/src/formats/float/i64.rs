//! `i64`: signed 64-bit numbers, little-endian, rounded to the nearest f32.

#[cfg(feature = "cube")]
use crate::cube::{DecodeEight, bits::rounded_whole};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

register_format! {
    /// 64 bits a value.
    I64 { name: "i64", tag: "I64", ggml_type: 27, block: [1, 8]; device: [] }
}

impl Unpack<32, 256> for I64 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 256], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = i64::from_le_bytes(*bytes) as f32;
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for I64 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        #[unroll]
        for k in 0..8usize {
            let low = words[2 * (start + k)];
            let high = words[2 * (start + k) + 1];
            let sign = high & 0x8000_0000;
            // The magnitude of a negative number is its complement plus one.
            let carry = select(low == 0, 1u32, 0u32);
            let upper = select(sign == 0, high, !high + carry);
            let lower = select(sign == 0, low, !low + 1);
            values[k] = rounded_whole(sign, upper, lower);
        }
    }
}
