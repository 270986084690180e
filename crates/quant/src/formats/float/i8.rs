//! `i8`: signed bytes.

#[cfg(feature = "cube")]
use crate::cube::{DecodeEight, bits::signed_at};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

register_format! {
    /// 8 bits a value.
    I8 { name: "i8", tag: "I8", ggml_type: 24, block: [1, 1]; device: [] }
}

impl Unpack<32, 32> for I8 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 32], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from(i8::from_le_bytes(*bytes));
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for I8 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        #[unroll]
        for k in 0..8usize {
            values[k] = signed_at(words, start + k);
        }
    }
}
