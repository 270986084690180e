//! GGML `IQ1_S`: blocks of 256 values, eight at a time a point of a grid of 2048: `value = d·(2s + 1) · (point ± 1/8)`.
//!
//! Layout: `d: f16 | qs: [u8; 32] | qh: [u16; 8]`, 50 bytes: for each 32 values the upper three bits of four points, three bits
//! of scale and the sign of the eighth in a `u16` (`block_iq1_s` in ggml-common.h).

use crate::{kernels::Unpack, register_format};

use super::{
    grids::{one_bit, put_levels},
    half_at,
};

register_format! {
    /// 1.5625 bits a value.
    Iq1S { name: "iq1_s", tag: "IQ1_S", ggml_type: 19, block: [256, 50] }
}

impl Unpack<256, 50> for Iq1S {
    #[inline(always)]
    fn unpack(bytes: &[u8; 50], values: &mut [f32; 256]) {
        let d = half_at(bytes, 0);
        for group in 0..8 {
            let rest = u16::from_le_bytes([bytes[34 + 2 * group], bytes[35 + 2 * group]]);
            let scale = d * (2.0 * f32::from(rest >> 12 & 7) + 1.0);
            let delta = if rest >> 15 == 0 { 0.125 } else { -0.125 };
            for l in 0..4 {
                let high = usize::from(rest >> (3 * l) & 7);
                let point = one_bit::POINTS[usize::from(bytes[2 + 4 * group + l]) | high << 8];
                put_levels(point, delta, scale, &mut values[32 * group + 8 * l..][..8]);
            }
        }
    }
}
