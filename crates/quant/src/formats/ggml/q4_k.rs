//! GGML `Q4_K`: blocks of 256 values, 8 groups of 32 with scales and minima of 6 bits: `value = d·s · q - dmin·m`.
//!
//! Layout: `d: f16 | dmin: f16 | scales: [u8; 12] | qs: [u8; 128]`, 144 bytes: group 2j in the low halves of bytes 32·j to
//! 32·j + 31, group 2j + 1 in the high halves (`block_q4_K` in ggml-common.h).

#[cfg(feature = "cube")]
use super::groups::{minimum_code, scale_code};
#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{f16_at, nibble_at},
};
use crate::{
    kernels::{Coded, Pack},
    register_format,
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    Groups,
    bits::{halves, put},
    lines_of_header,
};

register_format! {
    /// 4.5 bits a value.
    Q4K { name: "q4_k", tag: "Q4_K", ggml_type: 12, block: [256, 144], writable; dot: codes; device: [] }
}

impl Coded<256, 144, 8> for Q4K {
    const HAS_STARTS: bool = true;

    #[inline(always)]
    fn codes(bytes: &[u8; 144], codes: &mut [i8; 256]) {
        for pair in 0..4 {
            let quants: &[u8; 32] = bytes[16 + 32 * pair..]
                .first_chunk()
                .expect("a block is longer");
            let [low, high] = halves(quants);
            put(&low, 0, &mut codes[64 * pair..]);
            put(&high, 0, &mut codes[64 * pair + 32..]);
        }
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 144], scales: &mut [f32; 8], starts: &mut [f32; 8]) {
        let header = bytes.first_chunk().expect("a block is longer");
        lines_of_header(header, scales, starts);
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q4K {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 144;
        let l = start % 256;
        let scale = f16_at(words, block) * scale_code(words, block + 4, l / 32);
        let minimum = f16_at(words, block + 2) * minimum_code(words, block + 4, l / 32);
        let shift = 4 * (l as u32 / 32 % 2);
        let quants = block + 16 + l / 64 * 32 + l % 32;
        #[unroll]
        for k in 0..8usize {
            values[k] = scale * f32::cast_from(nibble_at(words, quants + k, shift)) - minimum;
        }
    }
}

impl Pack<256, 144> for Q4K {
    fn pack(values: &[f32; 256], bytes: &mut [u8; 144]) {
        let groups = Groups::<8>::affine(values, 15.0, 63.0);
        bytes.fill(0);
        groups.put_header(bytes);
        for group in 0..8 {
            for l in 0..32 {
                let code = groups.code(group, values[32 * group + l], 15.0);
                bytes[16 + group / 2 * 32 + l] |= code << (group % 2 * 4);
            }
        }
    }
}
