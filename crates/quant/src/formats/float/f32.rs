//! `f32`: plain little-endian values. The product reads them in place.

use burn::tensor::DType;

#[cfg(feature = "cube")]
use crate::cube::DecodeEight;
use crate::{Block, FormatEntry, QuantFormat, kernels::WeightRows};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

inventory::submit! { FormatEntry(&F32) }

/// Four bytes a value.
#[derive(Debug)]
struct F32;

impl QuantFormat for F32 {
    crate::device_words! { F32 [] }

    fn name(&self) -> &'static str {
        "f32"
    }

    fn tags(&self) -> &'static [&'static str] {
        &["F32"]
    }

    fn ggml_type(&self) -> Option<u32> {
        Some(0)
    }

    fn block(&self) -> Option<Block> {
        Some(BLOCK)
    }

    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        for (value, bytes) in values.iter_mut().zip(rows.blocks(BLOCK).as_chunks().0) {
            *value = f32::from_le_bytes(*bytes);
        }
    }

    fn as_f32<'a>(&self, rows: &WeightRows<'a>) -> Option<&'a [f32]> {
        let bytes = rows.blocks(BLOCK);
        let is_native = cfg!(target_endian = "little");
        is_native
            .then(|| pulp::bytemuck::try_cast_slice(bytes).ok())
            .flatten()
    }

    fn dense_dtype(&self) -> Option<DType> {
        Some(DType::F32)
    }
}

const BLOCK: Block = Block { len: 1, bytes: 4 };

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for F32 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        #[unroll]
        for k in 0..8usize {
            values[k] = f32::reinterpret(words[start + k]);
        }
    }
}
