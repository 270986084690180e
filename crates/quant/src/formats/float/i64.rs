//! `i64`: signed 64-bit numbers, little-endian, rounded to the nearest f32.

use crate::{kernels::Unpack, register_format};

register_format! {
    /// 64 bits a value.
    I64 { name: "i64", tag: "I64", ggml_type: 27, block: [1, 8] }
}

impl Unpack<32, 256> for I64 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 256], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = i64::from_le_bytes(*bytes) as f32;
        }
    }
}
