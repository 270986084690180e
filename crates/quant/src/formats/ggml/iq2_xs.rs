//! GGML `IQ2_XS`: blocks of 256 values, eight at a time a point of a grid of 512: `value = d·(0.5 + s)/4 · ±point`.
//!
//! Layout: `d: f16 | qs: [u16; 32] | scales: [u8; 8]`, 74 bytes: nine bits of point and seven of signs each; a scale of 4 bits
//! for each 16 values (`block_iq2_xs` in ggml-common.h).

use crate::{kernels::Unpack, register_format};

use super::{
    grids::{even_signs, put_eight, two_bits},
    half_at,
};

register_format! {
    /// 2.3125 bits a value.
    Iq2Xs { name: "iq2_xs", tag: "IQ2_XS", ggml_type: 17, block: [256, 74] }
}

impl Unpack<256, 74> for Iq2Xs {
    #[inline(always)]
    fn unpack(bytes: &[u8; 74], values: &mut [f32; 256]) {
        let d = half_at(bytes, 0);
        for l in 0..32 {
            let code = u16::from_le_bytes([bytes[2 + 2 * l], bytes[3 + 2 * l]]);
            let s = bytes[66 + l / 4] >> (l / 2 % 2 * 4) & 15;
            let scale = d * (0.5 + f32::from(s)) * 0.25;
            let (point, signs) = (
                two_bits::XS[usize::from(code & 511)],
                even_signs(u32::from(code >> 9)),
            );
            put_eight(point, signs, scale, &mut values[8 * l..][..8]);
        }
    }
}
