//! GGML `Q5_0`: blocks of 32 values, an f16 scale and 32 codes of 5 bits: `value = d · (q - 16)`.
//!
//! Layout: `d: f16 | qh: u32 | qs: [u8; 16]`, 22 bytes: the lower four bits of value i in the low half of byte i, of
//! value i + 16 in the high half; the fifth bit of value i is bit i of `qh` (`block_q5_0` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{f16_at, nibble_at, word_at},
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;
use half::f16;

use crate::{
    kernels::{Coded, Pack, fit::symmetric_scale},
    register_format,
};

use super::{bits, code, half_at, put_fives};

register_format! {
    /// 5.5 bits a value.
    Q5_0 { name: "q5_0", tag: "Q5_0", ggml_type: 6, block: [32, 22], writable; dot: codes; device: [] }
}

impl Coded<32, 22, 1> for Q5_0 {
    #[inline(always)]
    fn codes(bytes: &[u8; 22], codes: &mut [i8; 32]) {
        bits::put_fives(bytes.last_chunk().expect("a block is longer"), 16, codes);
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 22], scales: &mut [f32; 1], _starts: &mut [f32; 1]) {
        scales[0] = half_at(bytes, 0);
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q5_0 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 32 * 22;
        let l = start % 32;
        let d = f16_at(words, block);
        let fifths = word_at(words, block + 2) >> l as u32;
        let shift = 4 * (l as u32 / 16);
        #[unroll]
        for k in 0..8usize {
            let code = nibble_at(words, block + 6 + l % 16 + k, shift);
            let fifth = ((fifths >> k as u32) & 1) << 4;
            values[k] = d * (f32::cast_from(code | fifth) - 16.0);
        }
    }
}

impl Pack<32, 22> for Q5_0 {
    fn pack(values: &[f32; 32], bytes: &mut [u8; 22]) {
        let d = f16::from_f32(symmetric_scale(values, 16.0));
        let [d_bytes @ .., _, _, _, _] =
            bytes.first_chunk_mut::<6>().expect("a block has 22 bytes");
        *d_bytes = d.to_le_bytes();
        let codes = values.map(|value| code(value, d.to_f32(), 16.0, 31.0));
        put_fives(
            &codes,
            bytes.last_chunk_mut().expect("a block has 22 bytes"),
        );
    }
}
