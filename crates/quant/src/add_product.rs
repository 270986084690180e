//! `output + input · weightᵀ` in place: what a narrow product adds to a wide one that is there already.
//!
//! `output` `[rows, d_output]`, `input` `[rows, d_input]`, `weight` `[d_output, d_input]`, all f32. On the host the
//! output is written where it stands, tile by tile, instead of making a second one and adding the two.

use burn::tensor::{DType, Tensor};
use rayon::iter::ParallelIterator;

use crate::{
    host_data::to_f32,
    kernels::{InputRows, OutputGrid, is_host},
};

/// Adds `input · weightᵀ` to `output`.
///
/// # Panics
/// If the sizes do not fit, or a tensor is not f32.
#[must_use]
pub fn add_product(output: Tensor<2>, input: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let ([num_rows, d_output], [weight_rows, d_input]) = (output.dims(), weight.dims());
    assert_eq!(
        (input.dims(), weight_rows),
        ([num_rows, d_input], d_output),
        "output, input and weight differ in size"
    );
    let dtypes = [output.dtype(), input.dtype(), weight.dtype()];
    assert_eq!(dtypes, [DType::F32; 3], "sums are f32");
    let device = output.device();
    let is_small = num_rows * d_output < MIN_VALUES;
    if !is_host(&device) || is_small || d_input == 0 {
        return output + input.matmul(weight.transpose());
    }
    let (mut sums, input, weight) = (output.into_data(), input.into_data(), weight.into_data());
    let values = sums.as_mut_slice::<f32>().expect("the data is f32");
    add_rows(values, &to_f32(&input), &to_f32(&weight), d_input);
    Tensor::from_data(sums, (&device, DType::F32))
}

fn add_rows(output: &mut [f32], input: &[f32], weight: &[f32], d_input: usize) {
    let input = InputRows::new(input, d_input);
    OutputGrid::new(output, weight.len() / d_input, TILE)
        .into_par_tiles()
        .for_each(|mut tile| {
            let columns = tile.columns();
            let weight = &weight[columns.start * d_input..columns.end * d_input];
            tile.add_product(input.slice(tile.rows()), weight);
        });
}

/// Below so many outputs a second tensor costs less than the way in and out of the first.
const MIN_VALUES: usize = 1 << 16;
/// Rows and columns of a tile: 512 KiB, which stay in the second-level cache.
const TILE: [usize; 2] = [256, 512];
