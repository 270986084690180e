//! `f8_e5m2`: a sign, five bits of exponent with bias 15, two of mantissa, as in IEEE 754 (OCP 8-bit floating point
//! specification 1.0).

use crate::{
    kernels::{Unpack, minifloat},
    register_format,
};

register_format! {
    /// 8 bits a value.
    F8E5m2 { name: "f8_e5m2", tag: "F8_E5M2", block: [1, 1] }
}

impl Unpack<32, 32> for F8E5m2 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 32], values: &mut [f32; 32]) {
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = minifloat::widen_f8_e5m2(*byte);
        }
    }
}
