//! `i16`: signed 16-bit numbers, little-endian.

use crate::{kernels::Unpack, register_format};

register_format! {
    /// 16 bits a value.
    I16 { name: "i16", tag: "I16", ggml_type: 25, block: [1, 2] }
}

impl Unpack<32, 64> for I16 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 64], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from(i16::from_le_bytes(*bytes));
        }
    }
}
