//! Products with few input rows: weights are decoded in registers and read once for all of them.
//!
//! `output[r, j] = Σᵢ weight[j, i] · input[r, i]`, summed in `LANES` partial sums per output.

use std::{array::from_fn, marker::PhantomData};

use pulp::{Arch, Simd, WithSimd};

use crate::kernels::{
    InputRows, OutputTile, Unpack, WeightRows, block::dot_f32, unpack::unpack_tail,
};

/// The product by the format's own inner loop.
///
/// # Panics
/// If the format has no [`block`](crate::QuantFormat::block).
pub fn dot_packed<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    format: &F,
    rows: &WeightRows<'_>,
    input: InputRows<'_>,
    output: &mut OutputTile<'_>,
) {
    let block = format.block().expect("a format of steps has blocks");
    if !rows.d_input().is_multiple_of(block.len) {
        // Rows begin inside blocks.
        let decode = |row: &WeightRows<'_>, values: &mut [f32]| format.decode_rows(row, values);
        return dot_decoded(decode, rows, input, output);
    }
    Arch::new().dispatch(Dot::<F, LEN, BYTES> {
        bytes: rows.blocks(block),
        row_bytes: rows.d_input() / block.len * block.bytes,
        input,
        output,
        format: PhantomData,
    });
}

/// The product by way of a few decoded rows; what a format gets that has no inner loop of its own.
pub fn dot_decoded(
    decode: impl Fn(&WeightRows<'_>, &mut [f32]),
    rows: &WeightRows<'_>,
    input: InputRows<'_>,
    output: &mut OutputTile<'_>,
) {
    let mut values = vec![0.0; ROWS_AT_ONCE.min(rows.rows().len()) * rows.d_input()];
    let mut column = 0;
    for rows in rows.chunks(ROWS_AT_ONCE) {
        let num_rows = rows.rows().len();
        let values = &mut values[..num_rows * rows.d_input()];
        decode(&rows, values);
        dot_f32(values, input, &mut output.narrow(column..column + num_rows));
        column += num_rows;
    }
}

struct Dot<'a, 'b, F, const LEN: usize, const BYTES: usize> {
    bytes: &'a [u8],
    row_bytes: usize,
    input: InputRows<'a>,
    output: &'a mut OutputTile<'b>,
    format: PhantomData<F>,
}

impl<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize> WithSimd
    for Dot<'_, '_, F, LEN, BYTES>
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _simd: S) {
        let mut row = 0;
        while row < self.input.num_rows() {
            row += match self.input.num_rows() - row {
                1 => self.write_rows::<S, 4, 1>(row),
                2 => self.write_rows::<S, 2, 2>(row),
                3 => self.write_rows::<S, 1, 3>(row),
                _ => self.write_rows::<S, 1, 4>(row),
            };
        }
    }
}

impl<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize> Dot<'_, '_, F, LEN, BYTES> {
    /// Writes `N` rows of the output, `M` columns at a time, and says how many rows they were.
    ///
    /// The weight is read as `M` streams far from each other, so that more of it is on its way at once.
    #[inline(always)]
    fn write_rows<S: Simd, const M: usize, const N: usize>(&mut self, row: usize) -> usize {
        let num_columns = self.bytes.len() / self.row_bytes;
        let stream_len = num_columns / M;
        for column in 0..stream_len {
            self.write_columns::<S, M, N>(row, from_fn(|m| column + m * stream_len));
        }
        for column in M * stream_len..num_columns {
            self.write_columns::<S, 1, N>(row, [column]);
        }
        N
    }

    #[inline(always)]
    fn write_columns<S: Simd, const M: usize, const N: usize>(
        &mut self,
        row: usize,
        columns: [usize; M],
    ) {
        let weight = columns.map(|column| &self.bytes[column * self.row_bytes..][..self.row_bytes]);
        let input = from_fn(|n| self.input.row(row + n));
        let sums = dot::<S, F, LEN, BYTES, M, N>(weight, input);
        for (column, sums) in columns.into_iter().zip(sums) {
            self.output.write(row, column, sums);
        }
    }
}

/// Dot products of `M` packed weight rows with `N` input rows, in `LANES` partial sums each.
#[inline(always)]
fn dot<
    S: Simd,
    F: Unpack<LEN, BYTES>,
    const LEN: usize,
    const BYTES: usize,
    const M: usize,
    const N: usize,
>(
    weight: [&[u8]; M],
    input: [&[f32]; N],
) -> [[f32; N]; M] {
    let num_steps = weight[0].len() / BYTES;
    let weight = weight.map(|row| row.as_chunks::<BYTES>());
    let input = input.map(|row| row.as_chunks::<LEN>());
    let steps = weight.map(|(steps, _)| &steps[..num_steps]);
    let input_steps = input.map(|(steps, _)| &steps[..num_steps]);
    let mut sums = [[[0.0; LANES]; N]; M];
    for step in 0..num_steps {
        for m in 0..M {
            let mut values = [0.0; LEN];
            let scale = F::unpack_unscaled(&steps[m][step], &mut values);
            for n in 0..N {
                add_products::<S, LEN>(&values, scale, &input_steps[n][step], &mut sums[m][n]);
            }
        }
    }
    if !weight[0].1.is_empty() {
        let input = input.map(|(_, tail)| tail);
        for m in 0..M {
            add_tail::<S, F, LEN, BYTES, N>(weight[m].1, input, &mut sums[m]);
        }
    }
    sums.map(|sums| sums.map(sum))
}

/// Adds what is left after the last whole step, padded with zeros to a step.
#[inline(always)]
fn add_tail<
    S: Simd,
    F: Unpack<LEN, BYTES>,
    const LEN: usize,
    const BYTES: usize,
    const N: usize,
>(
    weight: &[u8],
    input: [&[f32]; N],
    sums: &mut [[f32; LANES]; N],
) {
    let values = unpack_tail::<F, LEN, BYTES>(weight);
    for (input, sums) in input.into_iter().zip(sums) {
        let mut padded = [0.0; LEN];
        padded[..input.len()].copy_from_slice(input);
        add_products::<S, LEN>(&values, 1.0, &padded, sums);
    }
}

/// Adds `scale · (weight · input)` to the sums: the products of a step are summed before they are scaled.
#[inline(always)]
fn add_products<S: Simd, const LEN: usize>(
    weight: &[f32; LEN],
    scale: f32,
    input: &[f32; LEN],
    sums: &mut [f32; LANES],
) {
    let mut products = [0.0; LANES];
    for (weight, input) in weight
        .as_chunks::<LANES>()
        .0
        .iter()
        .zip(input.as_chunks::<LANES>().0)
    {
        for lane in 0..LANES {
            products[lane] = add_product::<S>(weight[lane], input[lane], products[lane]);
        }
    }
    for lane in 0..LANES {
        sums[lane] = add_product::<S>(products[lane], scale, sums[lane]);
    }
}

/// `a · b + sum`, fused where that is an instruction rather than a library call.
#[inline(always)]
pub(crate) fn add_product<S: Simd>(a: f32, b: f32, sum: f32) -> f32 {
    if S::IS_SCALAR {
        a * b + sum
    } else {
        a.mul_add(b, sum)
    }
}

/// Sums the lanes in halves.
#[inline(always)]
fn sum<const LANES: usize>(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}

/// Rows that are decoded at once: what a format prepares for a row it prepares for all, and they stay in the cache.
const ROWS_AT_ONCE: usize = 6;
/// Partial sums per output: two vectors of 8, or one of 16.
const LANES: usize = 16;
