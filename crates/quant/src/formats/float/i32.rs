//! `i32`: signed 32-bit numbers, little-endian, rounded to the nearest f32.

use crate::{kernels::Unpack, register_format};

register_format! {
    /// 32 bits a value.
    I32 { name: "i32", tag: "I32", ggml_type: 26, block: [1, 4] }
}

impl Unpack<32, 128> for I32 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 128], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = i32::from_le_bytes(*bytes) as f32;
        }
    }
}
