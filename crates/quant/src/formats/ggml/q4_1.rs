//! GGML `Q4_1`: blocks of 32 values, an f16 scale, an f16 minimum and 32 codes of 4 bits: `value = d · q + m`.
//!
//! Layout: `d: f16 | m: f16 | qs: [u8; 16]`, 20 bytes: value i in the low half of byte i, value i + 16 in the high half
//! (`block_q4_1` in ggml-common.h).

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
    bits::{halves, put},
    code, half_at, put_span,
};

register_format! {
    /// 5 bits a value.
    Q4_1 { name: "q4_1", tag: "Q4_1", ggml_type: 3, block: [32, 20], writable; dot: codes; device: [] }
}

impl Coded<32, 20, 1> for Q4_1 {
    const HAS_STARTS: bool = true;

    #[inline(always)]
    fn codes(bytes: &[u8; 20], codes: &mut [i8; 32]) {
        let quants: &[u8; 16] = bytes.last_chunk().expect("a block is longer");
        let [low, high] = halves(quants);
        put(&low, 0, codes);
        put(&high, 0, &mut codes[16..]);
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 20], scales: &mut [f32; 1], starts: &mut [f32; 1]) {
        scales[0] = half_at(bytes, 0);
        starts[0] = half_at(bytes, 2);
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q4_1 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 32 * 20;
        let l = start % 32;
        let d = f16_at(words, block);
        let m = f16_at(words, block + 2);
        let shift = 4 * (l as u32 / 16);
        #[unroll]
        for k in 0..8usize {
            let code = nibble_at(words, block + 4 + l % 16 + k, shift);
            values[k] = d * f32::cast_from(code) + m;
        }
    }
}

impl Pack<32, 20> for Q4_1 {
    fn pack(values: &[f32; 32], bytes: &mut [u8; 20]) {
        let [d, m] = put_span(values, 15.0, bytes);
        let q = |value: f32| code(value - m, d, 0.0, 15.0);
        for i in 0..16 {
            bytes[4 + i] = q(values[i]) | q(values[16 + i]) << 4;
        }
    }
}
