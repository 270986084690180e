//! `W' = round(W + up · down)`: a packed matrix and a product of two thin factors, as a matrix of floats.
//!
//! On the host, tile by tile of rows: a tile is decoded into the second-level cache, the product is added to it
//! there, and it is rounded into its place. Neither the decoded matrix nor the product ever exists as a whole, and
//! memory is read and written once.

use std::ops::Range;

use burn::tensor::{Bytes, DType, Element, FloatDType, Tensor, TensorData};
use half::{f16, slice::HalfFloatSliceExt};
use pulp::{Arch, Simd, WithSimd};

use crate::{
    QuantizedTensor,
    host_data::{own_data, to_f32},
    kernels::{InputRows, OutputGrid, written_by_chunks},
};

impl QuantizedTensor {
    /// The matrix plus `up` `[d_output, rank]` times `down` `[rank, d_input]`, both f32: summed in f32, and rounded
    /// once to `dtype`; a matrix in host memory in the format of that name, f32 where there is none.
    ///
    /// # Panics
    /// If the sizes do not fit, or a factor is not f32.
    #[must_use]
    pub fn plus_product(&self, up: Tensor<2>, down: Tensor<2>, dtype: FloatDType) -> Self {
        let ([d_output, d_input], rank) = (self.shape(), down.dims()[0]);
        assert_eq!(
            [up.dims(), down.dims()],
            [[d_output, rank], [rank, d_input]],
            "the factors do not fit the matrix"
        );
        assert_eq!([up.dtype(), down.dtype()], [DType::F32; 2], "sums are f32");
        let (up, down) = (own_data(up), own_data(down));
        let product = Product {
            up: &to_f32(&up),
            down: &to_f32(&down),
            rank,
        };
        match dtype {
            FloatDType::BF16 => self.rounded(DType::BF16, product, round_bf16),
            FloatDType::F16 => self.rounded(DType::F16, product, |sums, values: &mut [f16]| {
                values.convert_from_f32_slice(sums);
            }),
            _ => self.rounded(DType::F32, product, |sums, values: &mut [f32]| {
                values.copy_from_slice(sums);
            }),
        }
    }

    /// `round` writes sums as values whose bits are those of `dtype`.
    fn rounded<T: Element + Copy + Default + Send>(
        &self,
        dtype: DType,
        product: Product<'_>,
        round: impl Fn(&[f32], &mut [T]) + Sync + Send,
    ) -> Self {
        let [d_output, d_input] = self.shape();
        let tile_rows = (TILE_VALUES / d_input.max(1)).next_multiple_of(ROW_STEP);
        let tile_rows = tile_rows.clamp(ROW_STEP, MAX_TILE_ROWS).min(d_output);
        let tile_len = (tile_rows * d_input).max(1);
        let merged = written_by_chunks(
            d_output * d_input,
            tile_len,
            || (vec![0.0; tile_len], vec![T::default(); tile_len]),
            |(sums, values), index, len| {
                let first = index * tile_rows;
                let (sums, values) = (&mut sums[..len], &mut values[..len]);
                self.add_rows(first..first + len / d_input, product, sums);
                round(sums, values);
                values
            },
        );
        let merged = TensorData::from_bytes(Bytes::from_elems(merged), self.shape(), dtype);
        Self::of_data(merged).expect("the float formats are part of this crate")
    }

    /// Writes the sums of `rows`.
    fn add_rows(&self, rows: Range<usize>, product: Product<'_>, sums: &mut [f32]) {
        self.decode_rows(rows.clone(), sums);
        let Product { up, down, rank } = product;
        if rank == 0 {
            return;
        }
        let (d_input, up) = (self.shape()[1], InputRows::new(up, rank));
        for mut tile in OutputGrid::new(sums, d_input, [rows.len(), d_input]).into_tiles() {
            tile.add_product_of(up.slice(rows.clone()), down);
        }
    }
}

/// Two thin factors: `up` `[d_output, rank]`, `down` `[rank, d_input]`.
#[derive(Clone, Copy)]
struct Product<'a> {
    up: &'a [f32],
    down: &'a [f32],
    rank: usize,
}

/// Writes the nearest bf16 of each sum, ties to even.
fn round_bf16(sums: &[f32], output: &mut [u16]) {
    Arch::new().dispatch(RoundBf16 { sums, output });
}

struct RoundBf16<'a> {
    sums: &'a [f32],
    output: &'a mut [u16],
}

impl WithSimd for RoundBf16<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for (output, sum) in self.output.iter_mut().zip(self.sums) {
            *output = nearest_bf16(*sum);
        }
    }
}

/// The bits of the nearest bf16, ties to even; without a branch, so that it runs on vectors.
#[inline(always)]
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

/// f32 values of a tile, about, where rows are short: 256 KiB, half of a second-level cache.
const TILE_VALUES: usize = 1 << 16;
/// Rows come in multiples of this, a multiple of what the product's inner loops take at a time.
const ROW_STEP: usize = 24;
/// Narrow matrices are still cut often enough for all threads.
const MAX_TILE_ROWS: usize = 10 * ROW_STEP;

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
        let values: Vec<_> = edges
            .into_iter()
            .chain(spread)
            .map(f32::from_bits)
            .collect();
        let mut found = vec![0; values.len()];
        round_bf16(&values, &mut found);
        for (value, found) in values.into_iter().zip(found) {
            let expected = bf16::from_f32(value).to_bits();
            assert_eq!(found, expected, "{:#x}", value.to_bits());
        }
    }
}
