//! GGML `IQ4_XS`: blocks of 256 values, 8 groups of 32 with signed scales of 6 bits and codes of 4 bits into a table:
//! `value = d·(s - 32) · table[q]`.
//!
//! Layout: `d: f16 | scales_h: u16 | scales_l: [u8; 4] | qs: [u8; 128]`, 136 bytes: a group's 32 codes in 16 bytes as in
//! `IQ4_NL`; the lower four bits of its scale in half g mod 2 of `scales_l` byte g / 2, the upper two in bits 2g of `scales_h`
//! (`block_iq4_xs` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{entry_at, f16_at, nibble_at, short_at},
};
use crate::{kernels::Coded, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    bits::{halves, put},
    half_at, uneven,
};

register_format! {
    /// 4.25 bits a value, unevenly spaced.
    Iq4Xs { name: "iq4_xs", tag: "IQ4_XS", ggml_type: 23, block: [256, 136]; dot: codes; device: [uneven::DEVICE_TABLE] }
}

impl Coded<256, 136, 8> for Iq4Xs {
    const TABLE: Option<[i8; 16]> = Some(uneven::TABLE);

    #[inline(always)]
    fn codes(bytes: &[u8; 136], codes: &mut [i8; 256]) {
        for group in 0..8 {
            let quants = bytes[8 + 16 * group..].first_chunk::<16>();
            let [low, high] = halves(quants.expect("a block is longer"));
            put(&low, 0, &mut codes[32 * group..]);
            put(&high, 0, &mut codes[32 * group + 16..]);
        }
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 136], scales: &mut [f32; 8], _starts: &mut [f32; 8]) {
        let d = half_at(bytes, 0);
        let high = u16::from_le_bytes([bytes[2], bytes[3]]);
        for group in 0..8 {
            let low = u16::from(bytes[4 + group / 2] >> (group % 2 * 4) & 15);
            scales[group] = d * (f32::from(low | (high >> (2 * group) & 3) << 4) - 32.0);
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Iq4Xs {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 136 + 32;
        let l = start % 256;
        let group = l as u32 / 32;
        let low = nibble_at(words, block + 4 + l / 64, 4 * (group % 2));
        let high = (short_at(words, block + 2) >> (2 * group)) & 3;
        let scale = f16_at(words, block) * (f32::cast_from(low | (high << 4)) - 32.0);
        let shift = 4 * (l as u32 / 16 % 2);
        let quants = block + 8 + l / 32 * 16 + l % 16;
        #[unroll]
        for k in 0..8usize {
            let code = nibble_at(words, quants + k, shift);
            values[k] = scale * (f32::cast_from(entry_at(words, 0, code)) - 128.0);
        }
    }
}
