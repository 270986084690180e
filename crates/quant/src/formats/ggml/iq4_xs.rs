//! GGML `IQ4_XS`: blocks of 256 values, 8 groups of 32 with signed scales of 6 bits and codes of 4 bits into a table:
//! `value = d·(s - 32) · table[q]`.
//!
//! Layout: `d: f16 | scales_h: u16 | scales_l: [u8; 4] | qs: [u8; 128]`, 136 bytes: a group's 32 codes in 16 bytes as in
//! `IQ4_NL`; the lower four bits of its scale in half g mod 2 of `scales_l` byte g / 2, the upper two in bits 2g of `scales_h`
//! (`block_iq4_xs` in ggml-common.h).

use crate::{kernels::Unpack, register_format};

use super::{half_at, uneven};

register_format! {
    /// 4.25 bits a value, unevenly spaced.
    Iq4Xs { name: "iq4_xs", tag: "IQ4_XS", ggml_type: 23, block: [256, 136] }
}

impl Unpack<256, 136> for Iq4Xs {
    #[inline(always)]
    fn unpack(bytes: &[u8; 136], values: &mut [f32; 256]) {
        let d = half_at(bytes, 0);
        let high = u16::from_le_bytes([bytes[2], bytes[3]]);
        for group in 0..8 {
            let low = u16::from(bytes[4 + group / 2] >> (group % 2 * 4) & 15);
            let scale = d * (f32::from(low | (high >> (2 * group) & 3) << 4) - 32.0);
            for l in 0..16 {
                let byte = bytes[8 + 16 * group + l];
                values[32 * group + l] = scale * uneven::VALUES[usize::from(byte & 15)];
                values[32 * group + 16 + l] = scale * uneven::VALUES[usize::from(byte >> 4)];
            }
        }
    }
}
