//! GGML `MXFP4`: blocks of 32 values, a power of two and 32 floats of 4 bits (E2M1): `value = 2^(e - 127) · q`.
//!
//! Layout: `e: u8 | qs: [u8; 16]`, 17 bytes: value i in the low half of byte i, value i + 16 in the high half (`block_mxfp4`
//! in ggml-common.h; OCP Microscaling Formats specification 1.0). The codes are read doubled, so the power is halved.

use crate::{kernels::Unpack, register_format};

use super::four_bit_float::DOUBLED;

register_format! {
    /// 4.25 bits a value.
    Mxfp4 { name: "mxfp4", tag: "MXFP4", ggml_type: 39, block: [32, 17] }
}

impl Unpack<32, 17> for Mxfp4 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 17], values: &mut [f32; 32]) {
        let d = Self::unpack_unscaled(bytes, values);
        values.iter_mut().for_each(|value| *value *= d);
    }

    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; 17], values: &mut [f32; 32]) -> f32 {
        for i in 0..16 {
            let byte = bytes[1 + i];
            values[i] = DOUBLED[usize::from(byte & 15)];
            values[16 + i] = DOUBLED[usize::from(byte >> 4)];
        }
        half_of_power(bytes[0])
    }
}

/// `2^(e - 128)`, of which the two smallest are subnormal.
#[inline(always)]
fn half_of_power(e: u8) -> f32 {
    let e = u32::from(e);
    f32::from_bits(if e < 2 {
        0x0020_0000 << e
    } else {
        (e - 1) << 23
    })
}
