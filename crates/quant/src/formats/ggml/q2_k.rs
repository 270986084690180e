//! GGML `Q2_K`: blocks of 256 values, 16 groups of 16 with scales and minima of 4 bits: `value = d·s · q - dmin·m`.
//!
//! Layout: `scales: [u8; 16] | qs: [u8; 64] | d: f16 | dmin: f16`, 84 bytes: a group's scale in the low half of its byte,
//! its minimum in the high half. Value 128·h + 32·j + l is in bits 2j of byte 32·h + l (`block_q2_K` in ggml-common.h).

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
    Groups,
    bits::{pairs, put},
    half_at,
};

register_format! {
    /// 2.625 bits a value.
    Q2K { name: "q2_k", tag: "Q2_K", ggml_type: 10, block: [256, 84], writable; dot: codes; device: [] }
}

impl Coded<256, 84, 16> for Q2K {
    const HAS_STARTS: bool = true;

    #[inline(always)]
    fn codes(bytes: &[u8; 84], codes: &mut [i8; 256]) {
        for half in 0..2 {
            let quants: &[u8; 32] = bytes[16 + 32 * half..]
                .first_chunk()
                .expect("a block is longer");
            for (field, fields) in pairs(quants).iter().enumerate() {
                put(fields, 0, &mut codes[128 * half + 32 * field..]);
            }
        }
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 84], scales: &mut [f32; 16], starts: &mut [f32; 16]) {
        let (d, dmin) = (half_at(bytes, 80), half_at(bytes, 82));
        for group in 0..16 {
            scales[group] = d * f32::from(bytes[group] & 15);
            starts[group] = -(dmin * f32::from(bytes[group] >> 4));
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q2K {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 84;
        let l = start % 256;
        let line = byte_at(words, block + l / 16);
        let scale = f16_at(words, block + 80) * f32::cast_from(line & 15);
        let minimum = f16_at(words, block + 82) * f32::cast_from(line >> 4);
        let shift = 2 * (l as u32 / 32 % 4);
        let quants = block + 16 + l / 128 * 32 + l % 32;
        #[unroll]
        for k in 0..8usize {
            let code = (byte_at(words, quants + k) >> shift) & 3;
            values[k] = scale * f32::cast_from(code) - minimum;
        }
    }
}

impl Pack<256, 84> for Q2K {
    fn pack(values: &[f32; 256], bytes: &mut [u8; 84]) {
        let groups = Groups::<16>::affine(values, 3.0, 15.0);
        bytes.fill(0);
        bytes[80..82].copy_from_slice(&groups.d.to_le_bytes());
        bytes[82..84].copy_from_slice(&groups.dmin.to_le_bytes());
        for group in 0..16 {
            bytes[group] = groups.scales[group] | groups.minima[group] << 4;
            let (first, shift) = (16 + group / 8 * 32 + group % 2 * 16, group / 2 % 4 * 2);
            for l in 0..16 {
                let code = groups.code(group, values[16 * group + l], 3.0);
                bytes[first + l] |= code << shift;
            }
        }
    }
}
