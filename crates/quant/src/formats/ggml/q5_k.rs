//! GGML `Q5_K`: blocks of 256 values, 8 groups of 32 with scales and minima of 6 bits: `value = d·s · q - dmin·m`.
//!
//! Layout: `d: f16 | dmin: f16 | scales: [u8; 12] | qh: [u8; 32] | qs: [u8; 128]`, 176 bytes: the lower four bits as in
//! `Q4_K`, the fifth of value 32·j + l in bit j of `qh` byte l (`block_q5_K` in ggml-common.h).

#[cfg(feature = "cube")]
use super::groups::{minimum_code, scale_code};
#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, f16_at, nibble_at},
};
use crate::{
    kernels::{Coded, Pack},
    register_format,
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    Groups,
    bits::{halves, joined, planes, put},
    lines_of_header,
};

register_format! {
    /// 5.5 bits a value.
    Q5K { name: "q5_k", tag: "Q5_K", ggml_type: 13, block: [256, 176], writable; dot: codes; device: [] }
}

impl Coded<256, 176, 8> for Q5K {
    const HAS_STARTS: bool = true;

    #[inline(always)]
    fn codes(bytes: &[u8; 176], codes: &mut [i8; 256]) {
        let fifths = planes(bytes[16..].first_chunk::<32>().expect("a block is longer"));
        for pair in 0..4 {
            let quants: &[u8; 32] = bytes[48 + 32 * pair..]
                .first_chunk()
                .expect("a block is longer");
            for (half, fields) in halves(quants).iter().enumerate() {
                let fields = joined::<4, 32>(fields, &fifths[2 * pair + half]);
                put(&fields, 0, &mut codes[64 * pair + 32 * half..]);
            }
        }
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 176], scales: &mut [f32; 8], starts: &mut [f32; 8]) {
        let header = bytes.first_chunk().expect("a block is longer");
        lines_of_header(header, scales, starts);
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q5K {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 176;
        let l = start % 256;
        let scale = f16_at(words, block) * scale_code(words, block + 4, l / 32);
        let minimum = f16_at(words, block + 2) * minimum_code(words, block + 4, l / 32);
        let plane = l as u32 / 32;
        let shift = 4 * (plane % 2);
        let quants = block + 48 + l / 64 * 32 + l % 32;
        #[unroll]
        for k in 0..8usize {
            let code = nibble_at(words, quants + k, shift);
            let fifth = (byte_at(words, block + 16 + l % 32 + k) >> plane) & 1;
            values[k] = scale * f32::cast_from(code | (fifth << 4)) - minimum;
        }
    }
}

impl Pack<256, 176> for Q5K {
    fn pack(values: &[f32; 256], bytes: &mut [u8; 176]) {
        let groups = Groups::<8>::affine(values, 31.0, 63.0);
        bytes.fill(0);
        groups.put_header(bytes);
        for group in 0..8 {
            for l in 0..32 {
                let code = groups.code(group, values[32 * group + l], 31.0);
                bytes[48 + group / 2 * 32 + l] |= (code & 15) << (group % 2 * 4);
                bytes[16 + l] |= code >> 4 << group;
            }
        }
    }
}
