//! A weight's values, each rounded once.

use burn::tensor::FloatDType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::{calculate_cube_count_elemwise, prelude::*};

use super::{DecodeEight, bits::number_at, elem_type, empty};

/// The values `[d_output, d_input]` as a tensor of `dtype` on the device of `words`.
pub(super) fn dequantize<F: DecodeEight>(
    words: CubeTensor,
    shape: [usize; 2],
    dtype: FloatDType,
) -> CubeTensor {
    let output = empty(&words, shape, dtype.into());
    let num_units = (shape[0] * shape[1]).div_ceil(8);
    let cube_dim = CubeDim::new(&output.client, num_units);
    let cube_count = calculate_cube_count_elemwise(&output.client, num_units, cube_dim);
    dequantize_kernel::launch::<F>(
        &output.client,
        cube_count,
        cube_dim,
        words.into_buffer_arg(),
        output.clone().into_buffer_arg(),
        elem_type(dtype),
    );
    output
}

/// The numbers of the type `kind` that begin at word `start`, in f32, as a matrix of `shape`.
pub(super) fn numbers(
    words: CubeTensor,
    (start, kind): (usize, u32),
    shape: [usize; 2],
) -> CubeTensor {
    let output = empty(&words, shape, FloatDType::F32.into());
    let num_units = shape[0] * shape[1];
    let cube_dim = CubeDim::new(&output.client, num_units);
    let cube_count = calculate_cube_count_elemwise(&output.client, num_units, cube_dim);
    numbers_kernel::launch(
        &output.client,
        cube_count,
        cube_dim,
        words.into_buffer_arg(),
        output.clone().into_buffer_arg(),
        start,
        kind,
    );
    output
}

#[cube(launch)]
fn numbers_kernel(words: &[u32], output: &mut [f32], start: usize, kind: u32) {
    if ABSOLUTE_POS >= output.len() {
        terminate!();
    }
    output[ABSOLUTE_POS] = number_at(words, start, ABSOLUTE_POS, kind);
}

#[cube(launch)]
fn dequantize_kernel<F: DecodeEight, O: Float>(
    words: &[u32],
    output: &mut [O],
    #[define(O)] _dtype: ElemType,
) {
    let start = ABSOLUTE_POS * 8;
    if start >= output.len() {
        terminate!();
    }
    let mut values = Array::<f32>::new(8usize);
    F::eight(words, start, &mut values);
    #[unroll]
    for l in 0..8usize {
        if start + l < output.len() {
            output[start + l] = O::cast_from(values[l]);
        }
    }
}
