//! `f64`: IEEE 754 binary64, little-endian, rounded to the nearest f32.

#[cfg(feature = "cube")]
use crate::cube::{DecodeEight, bits::f64_at};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

register_format! {
    /// 64 bits a value.
    F64 { name: "f64", tag: "F64", ggml_type: 28, block: [1, 8]; device: [] }
}

impl Unpack<32, 256> for F64 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 256], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounding to the nearest f32 is the meaning"
            )]
            let nearest = f64::from_le_bytes(*bytes) as f32;
            *value = nearest;
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for F64 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        #[unroll]
        for k in 0..8usize {
            values[k] = f64_at(words, 2 * (start + k));
        }
    }
}
