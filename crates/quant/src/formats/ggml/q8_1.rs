//! GGML `Q8_1`: blocks of 32 values, an f16 scale, an f16 sum and 32 signed bytes: `value = d · q`.
//!
//! Layout: `d: f16 | s: f16 | qs: [i8; 32]`, 36 bytes, where `s = d · Σ q` serves integer products and no value
//! (`block_q8_1` in ggml-common.h). ggml makes such blocks of activations; files of weights rarely hold them. Of the two
//! layouts ggml has had, this is the one with 16-bit numbers.

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{f16_at, signed_at},
};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::half_at;

register_format! {
    /// 9 bits a value.
    Q8_1 { name: "q8_1", tag: "Q8_1", ggml_type: 9, block: [32, 36]; device: [] }
}

impl Unpack<32, 36> for Q8_1 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 36], values: &mut [f32; 32]) {
        let d = Self::unpack_unscaled(bytes, values);
        values.iter_mut().for_each(|value| *value *= d);
    }

    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; 36], values: &mut [f32; 32]) -> f32 {
        for (value, q) in values.iter_mut().zip(&bytes[4..]) {
            *value = f32::from(q.cast_signed());
        }
        half_at(bytes, 0)
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q8_1 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 32 * 36;
        let d = f16_at(words, block);
        #[unroll]
        for k in 0..8usize {
            values[k] = signed_at(words, block + 4 + start % 32 + k) * d;
        }
    }
}
