//! Merged weights of packed bases on the host, tile by tile of rows: decode, add, round, into the new weight.
//!
//! `W'[rows] = round(W[rows] + Σ strength · ΔW[rows])`. No dense f32 copy of a whole layer is ever made, neither
//! of the base nor of ΔW: a tile of each lives in a core's cache, and memory is read and written once. The sums
//! are those of the plain way, value by value.

use std::ops::Range;

use burn::tensor::{Bytes, DType, Device, Element, Tensor, TensorData, f16};
use overglaze_patches::{BaseAccess, BaseLayer, LayerShape, slice_rows};
use overglaze_quant::{QuantizedTensor, kernels::is_host};
use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSliceMut};

use crate::{Error, direct::Summand};

/// What is merged: a packed base `[d_output, fan_in]` and what goes on top.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiled<'a> {
    pub(crate) base: &'a QuantizedTensor,
    pub(crate) shape: &'a LayerShape,
    pub(crate) summands: &'a [Summand],
}

impl Tiled<'_> {
    /// Whether this is the way for these patches on `device`: all are thin factors, which rows can be cut from
    /// without computing the whole.
    pub(crate) fn fits(&self, device: &Device) -> bool {
        let can_be_cut = |(patch, _): &Summand| {
            patch.base_access() == BaseAccess::Shape
                && patch.d_input(self.shape) == self.shape.d_input()
                && patch.low_rank().is_some()
                && patch.slice_rows(0..1).is_some()
        };
        is_host(device) && self.summands.iter().all(can_be_cut)
    }

    /// The merged weight in `dtype` on `device`; `None` for a dtype it is not written for.
    pub(crate) fn merged(&self, dtype: DType, device: &Device) -> Result<Option<Tensor<2>>, Error> {
        let data = match dtype {
            DType::F32 => self.rounded(0_u32, dtype, f32::to_bits)?,
            DType::BF16 => self.rounded(0_u16, dtype, nearest_bf16)?,
            DType::F16 => self.rounded(0_u16, dtype, |value| f16::from_f32(value).to_bits())?,
            _ => return Ok(None),
        };
        Ok(Some(Tensor::from_data(data, (device, dtype))))
    }

    /// Every value as `round` has the bits of one in `dtype`. Zeros of an integer type come as untouched pages, so
    /// that each thread is the first to touch those of its own tiles.
    fn rounded<T>(
        &self,
        zero: T,
        dtype: DType,
        round: impl Fn(f32) -> T + Sync,
    ) -> Result<TensorData, Error>
    where
        T: Element + Copy + Send + Sync,
    {
        let [d_output, fan_in] = self.base.shape();
        let mut merged = vec![zero; d_output * fan_in];
        let tile_len = TILE_ROWS * fan_in.max(1);
        let tiles = merged.par_chunks_mut(tile_len).enumerate();
        tiles.try_for_each(|(index, output)| -> Result<(), Error> {
            let first = index * TILE_ROWS;
            let sum = self.sum(first..first + output.len() / fan_in.max(1))?;
            for (output, value) in output.iter_mut().zip(&sum) {
                *output = round(*value);
            }
            Ok(())
        })?;
        let bytes = Bytes::from_elems(merged);
        Ok(TensorData::from_bytes(bytes, [d_output, fan_in], dtype))
    }

    /// The rows `rows` of the sum, in f32.
    fn sum(&self, rows: Range<usize>) -> Result<Vec<f32>, Error> {
        let mut sum = vec![0.0; rows.len() * self.base.shape()[1]];
        self.base.decode_rows(rows.clone(), &mut sum);
        let shape = self.shape.with_rows(rows.len());
        let mut delta: Option<Tensor<2>> = None;
        for (patch, strength) in self.summands {
            let cut = slice_rows(patch, rows.clone());
            if let Some(rows) = cut.delta_weight(&BaseLayer::of_shape(&shape))? {
                let rows = match *strength {
                    1.0 => rows,
                    strength => rows.mul_scalar(strength),
                };
                delta = Some(match delta {
                    Some(delta) => delta + rows,
                    None => rows,
                });
            }
        }
        if let Some(delta) = delta {
            let delta = delta.into_data();
            let values = delta.as_slice::<f32>();
            for (sum, delta) in sum.iter_mut().zip(values.expect("residuals are f32")) {
                *sum += delta;
            }
        }
        Ok(sum)
    }
}

/// The bits of the nearest bf16, ties to even; without a branch, so that it runs on vectors.
fn nearest_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    let chosen = if value.is_nan() { quiet } else { rounded };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "16 bits are left of a number that was shifted by 16"
    )]
    let bits = chosen as u16;
    bits
}

/// With 3072 columns a tile of the base and one of ΔW have 1.5 MiB in f32.
const TILE_ROWS: usize = 64;

#[cfg(test)]
mod tests {
    use burn::tensor::bf16;

    use super::*;

    #[test]
    fn bf16_is_rounded_as_the_reference_does() {
        let edges = [
            0x7F7F_FFFF,
            0x7F80_0000,
            0x7F80_0001,
            0xFFC0_0000,
            0x8000_8000,
            0x3F80_8000,
        ];
        let spread = (0..1 << 16).map(|index: u32| index.wrapping_mul(0x9E37_79B1));
        for bits in edges.into_iter().chain(spread) {
            let value = f32::from_bits(bits);
            let (found, expected) = (nearest_bf16(value), bf16::from_f32(value));
            assert_eq!(found, expected.to_bits(), "{bits:#x}");
        }
    }
}
