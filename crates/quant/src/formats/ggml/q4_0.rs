//! GGML `Q4_0`: blocks of 32 values, an f16 scale and 32 codes of 4 bits: `value = d · (q - 8)`.
//!
//! Layout: `d: f16 | qs: [u8; 16]`, 18 bytes: value i in the low half of byte i, value i + 16 in the high half
//! (`block_q4_0` in ggml-common.h).

use half::f16;

use crate::{
    kernels::{Pack, Unpack, fit::symmetric_scale},
    register_format,
};

use super::{code, half_at};

register_format! {
    /// 4.5 bits a value.
    Q4_0 { name: "q4_0", tag: "Q4_0", ggml_type: 2, block: [32, 18], writable; dot: registers }
}

impl Unpack<32, 18> for Q4_0 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 18], values: &mut [f32; 32]) {
        let d = Self::unpack_unscaled(bytes, values);
        values.iter_mut().for_each(|value| *value *= d);
    }

    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; 18], values: &mut [f32; 32]) -> f32 {
        for i in 0..16 {
            let byte = bytes[2 + i];
            values[i] = f32::from(byte & 15) - 8.0;
            values[16 + i] = f32::from(byte >> 4) - 8.0;
        }
        half_at(bytes, 0)
    }
}

impl Pack<32, 18> for Q4_0 {
    fn pack(values: &[f32; 32], bytes: &mut [u8; 18]) {
        let d = f16::from_f32(symmetric_scale(values, 8.0));
        bytes[..2].copy_from_slice(&d.to_le_bytes());
        let q = |value: f32| code(value, d.to_f32(), 8.0, 15.0);
        for i in 0..16 {
            bytes[2 + i] = q(values[i]) | q(values[16 + i]) << 4;
        }
    }
}
