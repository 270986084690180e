//! The product of few input rows with a packed weight: no decoded copy of the weight is made.
//!
//! A cube computes one output column. Its units share the weight row's values, eight at a time; each is decoded once and
//! meets every input row. Partial sums are added as a tree.

use burn::tensor::DType;
use burn_cubecl::{kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{DecodeEight, empty};

/// `input · weightᵀ` in f32: `[rows, d_input] -> [rows, d_output]`; `d_input` is a multiple of 8.
pub(super) fn linear<F: DecodeEight>(
    words: CubeTensor,
    input: CubeTensor,
    d_output: usize,
) -> CubeTensor {
    let num_rows = input.meta.shape()[0];
    let output = empty(&words, [num_rows, d_output], DType::F32);
    let cubes = |count: usize| u32::try_from(count).expect("a matrix in memory has fewer rows");
    let across = d_output.min(MAX_CUBES_ACROSS);
    linear_kernel::launch::<F>(
        &output.client,
        CubeCount::new_2d(cubes(across), cubes(d_output.div_ceil(across))),
        CubeDim::new_1d(UNITS),
        words.into_buffer_arg(),
        into_contiguous(input).into_buffer_arg(),
        output.clone().into_buffer_arg(),
        num_rows,
    );
    output
}

#[cube(launch)]
fn linear_kernel<F: DecodeEight>(
    words: &[u32],
    input: &[f32],
    output: &mut [f32],
    #[comptime] num_rows: usize,
) {
    let d_output = output.len() / num_rows;
    let d_input = input.len() / num_rows;
    // Cubes beyond the last column repeat it: units may not leave before the others that they wait for.
    let column = clamp_max(CUBE_POS, d_output - 1);
    let unit = UNIT_POS as usize;
    let mut sums = Array::<f32>::new(num_rows);
    #[unroll]
    for row in 0..num_rows {
        sums[row] = 0.0;
    }
    let mut values = Array::<f32>::new(8usize);
    for step in range_stepped(8 * unit, d_input, 8 * UNITS as usize) {
        F::eight(words, column * d_input + step, &mut values);
        #[unroll]
        for row in 0..num_rows {
            let mut sum = sums[row];
            #[unroll]
            for l in 0..8usize {
                sum += values[l] * input[row * d_input + step + l];
            }
            sums[row] = sum;
        }
    }
    let mut shared = Shared::<[f32]>::new_slice(UNITS as usize);
    #[unroll]
    for row in 0..num_rows {
        shared[unit] = sums[row];
        sync_cube();
        #[unroll]
        for halving in 1..=HALVINGS {
            let width = comptime!(UNITS as usize >> halving);
            if unit < width {
                let other = shared[unit + width];
                shared[unit] += other;
            }
            sync_cube();
        }
        if unit == 0 {
            output[row * d_output + column] = shared[0];
        }
        sync_cube();
    }
}

/// Units that share an output column, a power of two.
const UNITS: u32 = 64;
const HALVINGS: u32 = UNITS.ilog2();
/// Every device takes so many cubes along an axis.
const MAX_CUBES_ACROSS: usize = 32_768;
