//! GGML `IQ2_XXS`: blocks of 256 values, eight at a time a point of a grid of 256: `value = d·(0.5 + s)/4 · ±point`.
//!
//! Layout: `d: f16 | qs: [u8; 64]`, 66 bytes: for each 32 values four bytes of points, then 4 times 7 bits of signs and 4 bits
//! of scale in a `u32` (`block_iq2_xxs` in ggml-common.h).

use crate::{kernels::Unpack, register_format};

use super::{
    grids::{even_signs, put_eight, two_bits},
    half_at,
};

register_format! {
    /// 2.0625 bits a value.
    Iq2Xxs { name: "iq2_xxs", tag: "IQ2_XXS", ggml_type: 16, block: [256, 66] }
}

impl Unpack<256, 66> for Iq2Xxs {
    #[inline(always)]
    fn unpack(bytes: &[u8; 66], values: &mut [f32; 256]) {
        let d = half_at(bytes, 0);
        for group in 0..8 {
            let at = 2 + 8 * group;
            let rest =
                u32::from_le_bytes([bytes[at + 4], bytes[at + 5], bytes[at + 6], bytes[at + 7]]);
            let scale = d * (0.5 + (rest >> 28) as f32) * 0.25;
            for l in 0..4 {
                let point = two_bits::XXS[usize::from(bytes[at + l])];
                let signs = even_signs(rest >> (7 * l));
                put_eight(point, signs, scale, &mut values[32 * group + 8 * l..][..8]);
            }
        }
    }
}
