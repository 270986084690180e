//! GGML `Q6_K`: blocks of 256 values, 16 groups of 16 with signed scales of 8 bits: `value = d·s · (q - 32)`.
//!
//! Layout: `ql: [u8; 128] | qh: [u8; 64] | scales: [i8; 16] | d: f16`, 210 bytes. In each half of 128 values, value
//! 32·j + l has its lower four bits in half j / 2 of `ql` byte 32·(j mod 2) + l and its upper two in bits 2j of `qh` byte l
//! (`block_q6_K` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, f16_at, nibble_at, signed_at},
};
use crate::{
    kernels::{Coded, Pack},
    register_format,
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    bits::{halves, joined, pairs, put},
    code, half_at, symmetric_groups,
};

register_format! {
    /// 6.5625 bits a value.
    Q6K { name: "q6_k", tag: "Q6_K", ggml_type: 14, block: [256, 210], writable; dot: codes; device: [] }
}

impl Coded<256, 210, 16> for Q6K {
    #[inline(always)]
    fn codes(bytes: &[u8; 210], codes: &mut [i8; 256]) {
        for half in 0..2 {
            let low: &[u8; 64] = bytes[64 * half..].first_chunk().expect("a block is longer");
            let first = halves(low.first_chunk::<32>().expect("there are 64"));
            let second = halves(low.last_chunk::<32>().expect("there are 64"));
            let high: &[u8; 32] = bytes[128 + 32 * half..]
                .first_chunk()
                .expect("a block is longer");
            let low = [first[0], second[0], first[1], second[1]];
            for (field, (low, high)) in low.iter().zip(&pairs(high)).enumerate() {
                let fields = joined::<4, 32>(low, high);
                put(&fields, 32, &mut codes[128 * half + 32 * field..]);
            }
        }
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 210], scales: &mut [f32; 16], _starts: &mut [f32; 16]) {
        let d = half_at(bytes, 208);
        for group in 0..16 {
            scales[group] = d * f32::from(bytes[192 + group].cast_signed());
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q6K {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 210;
        let l = start % 256;
        let half = l / 128;
        let field = l / 32 % 4;
        let scale = f16_at(words, block + 208) * signed_at(words, block + 192 + l / 16);
        let low = block + 64 * half + field % 2 * 32 + l % 32;
        let shift = 4 * (field as u32 / 2);
        let high = block + 128 + 32 * half + l % 32;
        let plane = 2 * field as u32;
        #[unroll]
        for k in 0..8usize {
            let code = nibble_at(words, low + k, shift);
            let upper = (byte_at(words, high + k) >> plane) & 3;
            values[k] = scale * (f32::cast_from(code | (upper << 4)) - 32.0);
        }
    }
}

impl Pack<256, 210> for Q6K {
    fn pack(values: &[f32; 256], bytes: &mut [u8; 210]) {
        let (d, scales) = symmetric_groups(values, 32.0, 128.0);
        bytes.fill(0);
        bytes[208..].copy_from_slice(&d.to_le_bytes());
        for group in 0..16 {
            bytes[192 + group] = scales[group].cast_unsigned();
            let scale = d.to_f32() * f32::from(scales[group]);
            let [low, high] = places(group);
            for l in 0..16 {
                let code = code(values[16 * group + l], scale, 32.0, 63.0);
                bytes[low.0 + l] |= (code & 15) << low.1;
                bytes[high.0 + l] |= code >> 4 << high.1;
            }
        }
    }
}

/// Byte and bit of the lower four and of the upper two bits of a group's first value.
#[inline(always)]
fn places(group: usize) -> [(usize, usize); 2] {
    let (half, j, l) = (group / 8, group / 2 % 4, group % 2 * 16);
    [
        (64 * half + j % 2 * 32 + l, j / 2 * 4),
        (128 + 32 * half + l, 2 * j),
    ]
}
