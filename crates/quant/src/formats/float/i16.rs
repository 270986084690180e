//! `i16`: signed 16-bit numbers, little-endian.

#[cfg(feature = "cube")]
use crate::cube::{DecodeEight, bits::short_at};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

register_format! {
    /// 16 bits a value.
    I16 { name: "i16", tag: "I16", ggml_type: 25, block: [1, 2]; device: [] }
}

impl Unpack<32, 64> for I16 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 64], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from(i16::from_le_bytes(*bytes));
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for I16 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        #[unroll]
        for k in 0..8usize {
            values[k] = f32::cast_from(short_at(words, 2 * (start + k)) ^ 0x8000) - 32768.0;
        }
    }
}
