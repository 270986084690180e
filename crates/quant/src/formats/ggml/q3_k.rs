//! GGML `Q3_K`: blocks of 256 values, 16 groups of 16 with signed scales of 6 bits: `value = d·(s - 32) · q`, q from -4
//! to 3.
//!
//! Layout: `hmask: [u8; 32] | qs: [u8; 64] | scales: [u8; 12] | d: f16`, 110 bytes. The lower two bits of the codes stand
//! as in `Q2_K`; the third bit of value 32·j + l, inverted, is bit j of `hmask` byte l. Scales: the lower four bits of
//! group g in half g / 8 of byte g mod 8, the upper two in bits 2·(g / 4) of byte 8 + g mod 4 (`block_q3_K` in
//! ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, f16_at},
};
use crate::{
    kernels::{Coded, Pack},
    register_format,
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    bits::{joined, pairs, planes, put},
    half_at, symmetric_groups,
};

register_format! {
    /// 3.4375 bits a value.
    Q3K { name: "q3_k", tag: "Q3_K", ggml_type: 11, block: [256, 110], writable; dot: codes; device: [] }
}

impl Coded<256, 110, 16> for Q3K {
    #[inline(always)]
    fn codes(bytes: &[u8; 110], codes: &mut [i8; 256]) {
        let thirds = planes(bytes.first_chunk::<32>().expect("a block is longer"));
        for half in 0..2 {
            let quants: &[u8; 32] = bytes[32 + 32 * half..]
                .first_chunk()
                .expect("a block is longer");
            for (field, fields) in pairs(quants).iter().enumerate() {
                let fields = joined::<2, 32>(fields, &thirds[4 * half + field]);
                put(&fields, 4, &mut codes[128 * half + 32 * field..]);
            }
        }
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 110], scales: &mut [f32; 16], _starts: &mut [f32; 16]) {
        let d = half_at(bytes, 108);
        let packed: &[u8; 12] = bytes[96..108].try_into().expect("there are 12");
        for group in 0..16 {
            let low = packed[group % 8] >> (group / 8 * 4) & 15;
            let high = packed[8 + group % 4] >> (group / 4 * 2) & 3;
            scales[group] = d * (f32::from(low | high << 4) - 32.0);
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q3K {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 110;
        let l = start % 256;
        let group = l as u32 / 16;
        let low = (byte_at(words, block + 96 + l / 16 % 8) >> (group / 8 * 4)) & 15;
        let high = (byte_at(words, block + 104 + l / 16 % 4) >> (group / 4 * 2)) & 3;
        let scale = f16_at(words, block + 108) * (f32::cast_from(low | (high << 4)) - 32.0);
        let shift = 2 * (l as u32 / 32 % 4);
        let plane = l as u32 / 32;
        let quants = block + 32 + l / 128 * 32 + l % 32;
        #[unroll]
        for k in 0..8usize {
            let code = (byte_at(words, quants + k) >> shift) & 3;
            let third = (byte_at(words, block + l % 32 + k) >> plane) & 1;
            values[k] = scale * (f32::cast_from(code | (third << 2)) - 4.0);
        }
    }
}

impl Pack<256, 110> for Q3K {
    fn pack(values: &[f32; 256], bytes: &mut [u8; 110]) {
        let (d, scales) = symmetric_groups(values, 4.0, 32.0);
        bytes.fill(0);
        bytes[108..].copy_from_slice(&d.to_le_bytes());
        for group in 0..16 {
            let stored = super::shifted(scales[group], 32);
            bytes[96 + group % 8] |= (stored & 15) << (group / 8 * 4);
            bytes[104 + group % 4] |= stored >> 4 << (group / 4 * 2);
            let scale = d.to_f32() * f32::from(scales[group]);
            let (first, shift) = (32 + group / 8 * 32 + group % 2 * 16, group / 2 % 4 * 2);
            for l in 0..16 {
                let code = super::code(values[16 * group + l], scale, 4.0, 7.0);
                bytes[first + l] |= (code & 3) << shift;
                bytes[group % 2 * 16 + l] |= code >> 2 << (group / 2);
            }
        }
    }
}
