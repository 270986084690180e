//! Products with weights in f32: blocks of outputs are summed in registers, nothing is repacked.
//!
//! `output[r, j] = Σᵢ weight[j, i] · input[r, i]`, in as many partial sums as a vector has lanes. A block is
//! 3 weight rows by 4 input rows: 12 vector sums, which with their operands fill 16 registers; every vector
//! that is loaded is used 3 or 4 times. Where there are many input rows the sum runs over `d_input` in
//! chunks, so that a block's operands stay in the first-level cache; that does not change its order.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use crate::kernels::{InputRows, OutputTile};

/// Writes `input · weightᵀ` into `output`; `weight` is `[columns of output, d_input]`.
pub(crate) fn dot_f32(weight: &[f32], input: InputRows<'_>, output: &mut OutputTile<'_>) {
    let weight = InputRows::new(weight, input.d_input());
    Arch::new().dispatch(Blocks {
        weight,
        input,
        output,
    });
}

struct Blocks<'a, 'b> {
    weight: InputRows<'a>,
    input: InputRows<'a>,
    output: &'a mut OutputTile<'b>,
}

impl WithSimd for Blocks<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let [num_rows, d_input] = [self.input.num_rows(), self.input.d_input()];
        let num_columns = self.weight.num_rows();
        let mut sums = vec![simd.splat_f32s(0.0); num_rows * num_columns];
        let chunk_len = if num_rows <= UNCHUNKED_ROWS {
            d_input
        } else {
            CHUNK_LEN
        };
        for start in (0..d_input).step_by(chunk_len) {
            let columns = start..d_input.min(start + chunk_len);
            let (weight, input) = (self.weight, self.input);
            Chunk {
                weight,
                input,
                columns,
                sums: &mut sums,
            }
            .add::<S>(simd);
        }
        for (row, sums) in sums.chunks_exact(num_columns).enumerate() {
            for (output, sum) in self.output.row_mut(row).iter_mut().zip(sums) {
                *output = simd.reduce_sum_f32s(*sum);
            }
        }
    }
}

/// Some columns of weight and input, and the sums `[input rows, weight rows]` they are added to.
struct Chunk<'a, V> {
    weight: InputRows<'a>,
    input: InputRows<'a>,
    columns: Range<usize>,
    sums: &'a mut [V],
}

impl<V: Copy> Chunk<'_, V> {
    #[inline(always)]
    fn add<S: Simd<f32s = V>>(&mut self, simd: S) {
        let mut row = 0;
        while row < self.input.num_rows() {
            row += match self.input.num_rows() - row {
                1 => self.add_rows::<S, 1>(simd, row),
                2 => self.add_rows::<S, 2>(simd, row),
                3 => self.add_rows::<S, 3>(simd, row),
                _ => self.add_rows::<S, 4>(simd, row),
            };
        }
    }

    /// Adds `N` rows of the input and says how many they were.
    #[inline(always)]
    fn add_rows<S: Simd<f32s = V>, const N: usize>(&mut self, simd: S, row: usize) -> usize {
        let mut column = 0;
        while column < self.weight.num_rows() {
            column += match self.weight.num_rows() - column {
                1 => self.add_block::<S, 1, N>(simd, row, column),
                2 => self.add_block::<S, 2, N>(simd, row, column),
                _ => self.add_block::<S, 3, N>(simd, row, column),
            };
        }
        N
    }

    /// Adds one block of `M` columns and says how many they were.
    #[inline(always)]
    fn add_block<S: Simd<f32s = V>, const M: usize, const N: usize>(
        &mut self,
        simd: S,
        row: usize,
        column: usize,
    ) -> usize {
        let num_columns = self.weight.num_rows();
        let mut sums = [[simd.splat_f32s(0.0); M]; N];
        for (n, sums) in sums.iter_mut().enumerate() {
            sums.copy_from_slice(&self.sums[(row + n) * num_columns + column..][..M]);
        }
        let weight = self.weight.group(column, &self.columns);
        add_products::<S, M, N>(
            simd,
            weight,
            self.input.group(row, &self.columns),
            &mut sums,
        );
        for (n, sums) in sums.iter().enumerate() {
            self.sums[(row + n) * num_columns + column..][..M].copy_from_slice(sums);
        }
        M
    }
}

/// Adds the products of `M` weight rows with `N` input rows to their sums.
#[inline(always)]
fn add_products<S: Simd, const M: usize, const N: usize>(
    simd: S,
    weight: [&[f32]; M],
    input: [&[f32]; N],
    totals: &mut [[S::f32s; M]; N],
) {
    let (weight, weight_tail) = vectors::<S, M>(weight);
    let (input, input_tail) = vectors::<S, N>(input);
    let mut sums = *totals;
    for step in 0..weight[0].len() {
        let mut weights = [simd.splat_f32s(0.0); M];
        for m in 0..M {
            weights[m] = weight[m][step];
        }
        for n in 0..N {
            let input = input[n][step];
            for m in 0..M {
                sums[n][m] = simd.mul_add_e_f32s(weights[m], input, sums[n][m]);
            }
        }
    }
    if !weight_tail[0].is_empty() {
        for n in 0..N {
            let input = simd.partial_load_f32s(input_tail[n]);
            for m in 0..M {
                let weight = simd.partial_load_f32s(weight_tail[m]);
                sums[n][m] = simd.mul_add_e_f32s(weight, input, sums[n][m]);
            }
        }
    }
    *totals = sums;
}

/// Rows as whole vectors, and what is left of each.
#[inline(always)]
fn vectors<S: Simd, const N: usize>(rows: [&[f32]; N]) -> ([&[S::f32s]; N], [&[f32]; N]) {
    let len = rows[0].len() / S::F32_LANES;
    let mut vectors: [&[S::f32s]; N] = [&[]; N];
    let mut tails: [&[f32]; N] = [&[]; N];
    for n in 0..N {
        let (head, tail) = S::as_simd_f32s(rows[n]);
        (vectors[n], tails[n]) = (&head[..len], tail);
    }
    (vectors, tails)
}

/// Values of a row per chunk, a multiple of any vector's lanes.
const CHUNK_LEN: usize = 512;
/// Up to so many input rows a weight is used once, and reading it straight through is fastest.
const UNCHUNKED_ROWS: usize = 4;
