//! `f32`: plain little-endian values. The product reads them in place.

use burn::tensor::DType;

use crate::{FormatEntry, QuantFormat, kernels::WeightRows};

inventory::submit! { FormatEntry(&F32) }

/// Four bytes a value.
#[derive(Debug)]
struct F32;

impl QuantFormat for F32 {
    fn name(&self) -> &'static str {
        "f32"
    }

    fn tags(&self) -> &'static [&'static str] {
        &["F32"]
    }

    fn block_len(&self) -> usize {
        1
    }

    fn block_bytes(&self) -> usize {
        size_of::<f32>()
    }

    fn decode(&self, blocks: &[u8], values: &mut [f32]) {
        for (value, bytes) in values.iter_mut().zip(blocks.as_chunks().0) {
            *value = f32::from_le_bytes(*bytes);
        }
    }

    fn as_f32<'a>(&self, rows: &WeightRows<'a>) -> Option<&'a [f32]> {
        let bytes = rows.blocks([self.block_len(), self.block_bytes()]);
        let is_native = cfg!(target_endian = "little");
        is_native
            .then(|| pulp::bytemuck::try_cast_slice(bytes).ok())
            .flatten()
    }

    fn dense_dtype(&self) -> Option<DType> {
        Some(DType::F32)
    }
}
