//! `f8_e4m3`: a sign, four bits of exponent with bias 7, three of mantissa; no infinities (OCP 8-bit floating point
//! specification 1.0).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, widen_f8_e4m3},
};
use crate::{
    kernels::{Unpack, minifloat},
    register_format,
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

register_format! {
    /// 8 bits a value.
    F8E4m3 { name: "f8_e4m3", tag: "F8_E4M3", block: [1, 1]; device: [] }
}

impl Unpack<32, 32> for F8E4m3 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 32], values: &mut [f32; 32]) {
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = minifloat::widen_f8_e4m3(*byte);
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for F8E4m3 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        #[unroll]
        for k in 0..8usize {
            values[k] = widen_f8_e4m3(byte_at(words, start + k));
        }
    }
}
