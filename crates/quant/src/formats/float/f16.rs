//! `f16`: IEEE 754 binary16, little-endian.

use burn::tensor::DType;

#[cfg(feature = "cube")]
use crate::cube::{DecodeEight, bits::f16_at};
use crate::{
    Block, FormatEntry, QuantFormat,
    kernels::{InputRows, OutputTile, Unpack, WeightRows, decode_packed, dot_packed, widen_f16},
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

inventory::submit! { FormatEntry(&F16) }

/// Two bytes a value: sign, 5 bits of exponent, 10 of mantissa.
#[derive(Debug)]
struct F16;

impl QuantFormat for F16 {
    crate::device_words! { F16 [] }

    fn name(&self) -> &'static str {
        "f16"
    }

    fn tags(&self) -> &'static [&'static str] {
        &["F16"]
    }

    fn ggml_type(&self) -> Option<u32> {
        Some(1)
    }

    fn block(&self) -> Option<Block> {
        Some(Block { len: 1, bytes: 2 })
    }

    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        decode_packed(self, rows, values);
    }

    fn dot_rows(&self, rows: &WeightRows<'_>, input: InputRows<'_>, output: &mut OutputTile<'_>) {
        dot_packed(self, rows, input, output);
    }

    fn dense_dtype(&self) -> Option<DType> {
        Some(DType::F16)
    }
}

impl Unpack<32, 64> for F16 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 64], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = widen_f16(u16::from_le_bytes(*bytes));
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for F16 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        #[unroll]
        for k in 0..8usize {
            values[k] = f16_at(words, 2 * (start + k));
        }
    }
}
