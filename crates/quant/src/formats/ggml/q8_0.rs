//! GGML `Q8_0`: blocks of 32 values, an f16 scale and 32 signed bytes: `value = d · q`.
//!
//! Layout: `d: f16 | qs: [i8; 32]`, 34 bytes (`block_q8_0` in ggml-common.h).

use crate::{
    kernels::{Unpack, widen_f16},
    register_format,
};

register_format! {
    /// 8.5 bits a value.
    Q8_0 { name: "q8_0", tag: "Q8_0", ggml_type: 8, block: [32, 34] }
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
