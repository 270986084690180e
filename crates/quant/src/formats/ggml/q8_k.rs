//! GGML `Q8_K`: blocks of 256 values, an f32 scale, 256 signed bytes and sums: `value = d · q`.
//!
//! Layout: `d: f32 | qs: [i8; 256] | bsums: [i16; 16]`, 292 bytes; the sums of 16 codes each serve integer products and no
//! value (`block_q8_K` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{DecodeEight, bits::signed_at};
use crate::{kernels::Unpack, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

register_format! {
    /// 9.125 bits a value.
    Q8K { name: "q8_k", tag: "Q8_K", ggml_type: 15, block: [256, 292]; device: [] }
}

impl Unpack<256, 292> for Q8K {
    #[inline(always)]
    fn unpack(bytes: &[u8; 292], values: &mut [f32; 256]) {
        let d = Self::unpack_unscaled(bytes, values);
        values.iter_mut().for_each(|value| *value *= d);
    }

    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; 292], values: &mut [f32; 256]) -> f32 {
        for (value, q) in values.iter_mut().zip(&bytes[4..260]) {
            *value = f32::from(q.cast_signed());
        }
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Q8K {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 256 * 292;
        let d = f32::reinterpret(words[block / 4]);
        #[unroll]
        for k in 0..8usize {
            values[k] = signed_at(words, block + 4 + start % 256 + k) * d;
        }
    }
}
