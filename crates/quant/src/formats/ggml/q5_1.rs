//! GGML `Q5_1`: blocks of 32 values, an f16 scale, an f16 minimum and 32 codes of 5 bits: `value = d · q + m`.
//!
//! Layout: `d: f16 | m: f16 | qh: u32 | qs: [u8; 16]`, 24 bytes: codes as in `Q5_0` (`block_q5_1` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{f16_at, nibble_at, word_at},
};
use crate::{
    kernels::{Coded, Pack},
    register_format,
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{bits, code, half_at, put_fives, put_span};

register_format! {
    /// 6 bits a value.
    Q5_1 { name: "q5_1", tag: "Q5_1", ggml_type: 7, block: [32, 24], writable; dot: codes; device: [] }
}

impl Coded<32, 24, 1> for Q5_1 {
    const HAS_STARTS: bool = true;

    #[inline(always)]
    fn codes(bytes: &[u8; 24], codes: &mut [i8; 32]) {
        bits::put_fives(bytes.last_chunk().expect("a block is longer"), 0, codes);
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 24], scales: &mut [f32; 1], starts: &mut [f32; 1]) {
        scales[0] = half_at(bytes, 0);
        starts[0] = half_at(bytes, 2);
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q5_1 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 32 * 24;
        let l = start % 32;
        let d = f16_at(words, block);
        let m = f16_at(words, block + 2);
        let fifths = word_at(words, block + 4) >> l as u32;
        let shift = 4 * (l as u32 / 16);
        #[unroll]
        for k in 0..8usize {
            let code = nibble_at(words, block + 8 + l % 16 + k, shift);
            let fifth = ((fifths >> k as u32) & 1) << 4;
            values[k] = d * f32::cast_from(code | fifth) + m;
        }
    }
}

impl Pack<32, 24> for Q5_1 {
    fn pack(values: &[f32; 32], bytes: &mut [u8; 24]) {
        let [d, m] = put_span(values, 31.0, bytes);
        let codes = values.map(|value| code(value - m, d, 0.0, 31.0));
        put_fives(
            &codes,
            bytes.last_chunk_mut().expect("a block has 24 bytes"),
        );
    }
}
