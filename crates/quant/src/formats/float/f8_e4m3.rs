//! `f8_e4m3`: a sign, four bits of exponent with bias 7, three of mantissa; no infinities (OCP 8-bit floating point
//! specification 1.0).

use crate::{
    kernels::{Unpack, minifloat},
    register_format,
};

register_format! {
    /// 8 bits a value.
    F8E4m3 { name: "f8_e4m3", tag: "F8_E4M3", block: [1, 1] }
}

impl Unpack<32, 32> for F8E4m3 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 32], values: &mut [f32; 32]) {
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = minifloat::widen_f8_e4m3(*byte);
        }
    }
}
