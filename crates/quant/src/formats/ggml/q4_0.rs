//! GGML `Q4_0`: blocks of 32 values, an f16 scale and 32 codes of 4 bits: `value = d · (q - 8)`.
//!
//! Layout: `d: f16 | qs: [u8; 16]`, 18 bytes: value i in the low half of byte i, value i + 16 in the high half
//! (`block_q4_0` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{f16_at, nibble_at},
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;
use half::f16;

use crate::{
    kernels::{Coded, Pack, fit::symmetric_scale},
    register_format,
};

use super::{
    bits::{halves, put},
    code, half_at,
};

register_format! {
    /// 4.5 bits a value.
    Q4_0 { name: "q4_0", tag: "Q4_0", ggml_type: 2, block: [32, 18], writable; dot: codes; device: [] }
}

impl Coded<32, 18, 1> for Q4_0 {
    #[inline(always)]
    fn codes(bytes: &[u8; 18], codes: &mut [i8; 32]) {
        let [low, high] = halves(bytes.last_chunk::<16>().expect("a block is longer"));
        put(&low, 8, codes);
        put(&high, 8, &mut codes[16..]);
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 18], scales: &mut [f32; 1], _starts: &mut [f32; 1]) {
        scales[0] = half_at(bytes, 0);
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q4_0 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 32 * 18;
        let l = start % 32;
        let d = f16_at(words, block);
        let shift = 4 * (l as u32 / 16);
        #[unroll]
        for k in 0..8usize {
            let code = nibble_at(words, block + 2 + l % 16 + k, shift);
            values[k] = d * (f32::cast_from(code) - 8.0);
        }
    }
}

impl Pack<32, 18> for Q4_0 {
    fn pack(values: &[f32; 32], bytes: &mut [u8; 18]) {
        let d = f16::from_f32(symmetric_scale(values, 8.0));
        bytes[..2].copy_from_slice(&d.to_le_bytes());
        let q = |value: f32| code(value, d.to_f32(), 8.0, 15.0);
        for i in 0..16 {
            bytes[2 + i] = q(values[i]) | q(values[16 + i]) << 4;
        }
    }
}
