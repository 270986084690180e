//! `i32`: signed 32-bit numbers, little-endian, rounded to the nearest f32.

#[cfg(feature = "cube")]
use crate::cube::{DecodeEight, bits::rounded_whole};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

register_format! {
    /// 32 bits a value.
    I32 { name: "i32", tag: "I32", ggml_type: 26, block: [1, 4]; device: [] }
}

impl Unpack<32, 128> for I32 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 128], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = i32::from_le_bytes(*bytes) as f32;
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for I32 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        #[unroll]
        for k in 0..8usize {
            let bits = words[start + k];
            let sign = bits & 0x8000_0000;
            let magnitude = select(sign == 0, bits, !bits + 1);
            values[k] = rounded_whole(sign, 0u32, magnitude);
        }
    }
}
