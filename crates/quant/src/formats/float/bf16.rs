//! `bf16`: the upper half of an f32, little-endian: `value = bits << 16`.

use burn::tensor::DType;

#[cfg(feature = "cube")]
use crate::cube::{DecodeEight, bits::short_at};
use crate::{
    Block, FormatEntry, QuantFormat,
    kernels::{InputRows, OutputTile, Unpack, WeightRows, decode_packed, dot_packed},
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

inventory::submit! { FormatEntry(&Bf16) }

/// Two bytes a value, with the exponent of an f32.
#[derive(Debug)]
struct Bf16;

impl QuantFormat for Bf16 {
    crate::device_words! { Bf16 [] }

    fn name(&self) -> &'static str {
        "bf16"
    }

    fn tags(&self) -> &'static [&'static str] {
        &["BF16"]
    }

    fn ggml_type(&self) -> Option<u32> {
        Some(30)
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
        Some(DType::BF16)
    }
}

impl Unpack<32, 64> for Bf16 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 64], values: &mut [f32; 32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Bf16 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        #[unroll]
        for k in 0..8usize {
            values[k] = f32::reinterpret(short_at(words, 2 * (start + k)) << 16);
        }
    }
}
