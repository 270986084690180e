//! `i8`: signed bytes.

use crate::{kernels::Unpack, register_format};

register_format! {
    /// 8 bits a value.
    I8 { name: "i8", tag: "I8", ggml_type: 24, block: [1, 1] }
}

impl Unpack<32, 32> for I8 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 32], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from(i8::from_le_bytes(*bytes));
        }
    }
}
