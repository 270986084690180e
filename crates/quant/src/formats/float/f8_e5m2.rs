//! `f8_e5m2`: a sign, five bits of exponent with bias 15, two of mantissa, as in IEEE 754 (OCP 8-bit floating point
//! specification 1.0).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, f16_value},
};
use crate::{
    kernels::{Unpack, minifloat},
    register_format,
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

register_format! {
    /// 8 bits a value.
    F8E5m2 { name: "f8_e5m2", tag: "F8_E5M2", block: [1, 1]; device: [] }
}

impl Unpack<32, 32> for F8E5m2 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 32], values: &mut [f32; 32]) {
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = minifloat::widen_f8_e5m2(*byte);
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for F8E5m2 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        #[unroll]
        for k in 0..8usize {
            values[k] = f16_value(byte_at(words, start + k) << 8);
        }
    }
}
