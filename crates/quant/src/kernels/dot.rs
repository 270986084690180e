//! Products with few input rows: weights are decoded in registers and read once for all of them.
//!
//! `output[r, j] = Σᵢ weight[j, i] · input[r, i]`, summed in `LANES` partial sums per output.

use std::array::from_fn;

use pulp::{Arch, Simd, WithSimd};

use crate::kernels::{InputRows, OutputTile, Unpack, WeightRows, block::dot_f32};

/// The product by the format's own inner loop.
pub fn dot_packed<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    format: &F,
    rows: &WeightRows<'_>,
    input: InputRows<'_>,
    output: &mut OutputTile<'_>,
) {
    let block = [format.block_len(), format.block_bytes()];
    let row_bytes = rows.d_input() / block[0] * block[1];
    let bytes = rows.blocks(block);
    Arch::new().dispatch(Dot::<F, LEN, BYTES> {
        format,
        bytes,
        row_bytes,
        input,
        output,
    });
}

/// The product by way of one decoded row; what a format gets that has no inner loop of its own.
pub fn dot_decoded(
    decode: impl Fn(&WeightRows<'_>, &mut [f32]),
    rows: &WeightRows<'_>,
    input: InputRows<'_>,
    output: &mut OutputTile<'_>,
) {
    let mut values = vec![0.0; rows.d_input()];
    for (column, row) in rows.iter().enumerate() {
        decode(&row, &mut values);
        dot_f32(&values, input, &mut output.narrow(column..column + 1));
    }
}

struct Dot<'a, 'b, F, const LEN: usize, const BYTES: usize> {
    format: &'a F,
    bytes: &'a [u8],
    row_bytes: usize,
    input: InputRows<'a>,
    output: &'a mut OutputTile<'b>,
}

impl<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize> WithSimd
    for Dot<'_, '_, F, LEN, BYTES>
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self {
            format,
            bytes,
            row_bytes,
            input,
            output,
        } = self;
        for (column, bytes) in bytes.chunks_exact(row_bytes).enumerate() {
            let weight = PackedRow::<F, LEN, BYTES> { format, bytes };
            let mut row = 0;
            while row < input.num_rows() {
                row += match input.num_rows() - row {
                    1 => output.write(row, column, weight.dot::<S, 1, 32>(input, row)),
                    2 => output.write(row, column, weight.dot::<S, 2, 32>(input, row)),
                    3 => output.write(row, column, weight.dot::<S, 3, 16>(input, row)),
                    _ => output.write(row, column, weight.dot::<S, 4, 16>(input, row)),
                };
            }
        }
    }
}

/// One packed weight row.
struct PackedRow<'a, F, const LEN: usize, const BYTES: usize> {
    format: &'a F,
    bytes: &'a [u8],
}

impl<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize> PackedRow<'_, F, LEN, BYTES> {
    /// Dot products with the `N` input rows from `first_row` on, in `LANES` partial sums each.
    #[inline(always)]
    fn dot<S: Simd, const N: usize, const LANES: usize>(
        &self,
        input: InputRows<'_>,
        first_row: usize,
    ) -> [f32; N] {
        let mut sums = [[0.0; LANES]; N];
        let mut input_steps: [_; N] = from_fn(|n| input.row(first_row + n).as_chunks::<LEN>());
        let (steps, tail) = self.bytes.as_chunks::<BYTES>();
        for (input, _) in &mut input_steps {
            *input = &input[..steps.len()];
        }
        let mut weight = [0.0; LEN];
        for (step, bytes) in steps.iter().enumerate() {
            F::unpack(bytes, &mut weight);
            for n in 0..N {
                add_products::<S, LEN, LANES>(&weight, &input_steps[n].0[step], &mut sums[n]);
            }
        }
        if !tail.is_empty() {
            self.add_tail::<S, N, LANES>(tail, input_steps.map(|(_, tail)| tail), &mut sums);
        }
        sums.map(sum)
    }

    /// Adds what is left after the last whole step, padded with zeros to a step.
    #[inline(always)]
    fn add_tail<S: Simd, const N: usize, const LANES: usize>(
        &self,
        bytes: &[u8],
        input: [&[f32]; N],
        sums: &mut [[f32; LANES]; N],
    ) {
        let mut weight = [0.0; LEN];
        self.format.decode(bytes, &mut weight[..input[0].len()]);
        for (input, sums) in input.into_iter().zip(sums) {
            let mut padded = [0.0; LEN];
            padded[..input.len()].copy_from_slice(input);
            add_products::<S, LEN, LANES>(&weight, &padded, sums);
        }
    }
}

#[inline(always)]
fn add_products<S: Simd, const LEN: usize, const LANES: usize>(
    weight: &[f32; LEN],
    input: &[f32; LEN],
    sums: &mut [f32; LANES],
) {
    for (weight, input) in weight
        .as_chunks::<LANES>()
        .0
        .iter()
        .zip(input.as_chunks::<LANES>().0)
    {
        for lane in 0..LANES {
            sums[lane] = add_product::<S>(weight[lane], input[lane], sums[lane]);
        }
    }
}

/// `a · b + sum`, fused where that is an instruction rather than a library call.
#[inline(always)]
fn add_product<S: Simd>(a: f32, b: f32, sum: f32) -> f32 {
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
