//! The product of an input with a packed weight, tile by tile.

use rayon::iter::ParallelIterator;

use crate::{
    Parts, QuantFormat,
    kernels::{InputRows, OutputTile, Path, Plan, WeightRows, dot_f32, output_tile::OutputGrid},
};

/// A validated packed matrix `[d_output, d_input]`, as the kernels see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedMatrix<'a> {
    /// How it is packed.
    pub(crate) format: &'static dyn QuantFormat,
    /// `[d_output, d_input]`.
    pub(crate) shape: [usize; 2],
    /// The bytes, validated by the format.
    pub(crate) parts: &'a Parts,
}

/// `output = input · weightᵀ`: `[rows, d_input] -> [rows, d_output]`.
pub(crate) fn linear(
    weight: PackedMatrix<'_>,
    input: InputRows<'_>,
    output: &mut [f32],
    plan: Plan,
) {
    let grid = OutputGrid::new(output, weight.shape[0], plan.tile);
    if plan.is_parallel {
        grid.into_par_tiles()
            .for_each_init(Vec::new, |decoded, mut tile| {
                weight.multiply(plan.path, input, &mut tile, decoded);
            });
    } else {
        let mut decoded = Vec::new();
        for mut tile in grid.into_tiles() {
            weight.multiply(plan.path, input, &mut tile, &mut decoded);
        }
    }
}

impl PackedMatrix<'_> {
    fn multiply(
        &self,
        path: Path,
        input: InputRows<'_>,
        output: &mut OutputTile<'_>,
        decoded: &mut Vec<f32>,
    ) {
        let rows = WeightRows::new(self.parts, self.shape[1], output.columns());
        let input = input.slice(output.rows());
        match path {
            Path::Dot => self.format.dot_rows(&rows, input, output),
            Path::Block => dot_f32(self.as_f32(&rows, decoded), input, output),
            Path::Gemm => output.multiply(input, self.as_f32(&rows, decoded)),
        }
    }

    /// The rows as f32: in place, or decoded into `decoded`.
    fn as_f32<'a>(&self, rows: &WeightRows<'a>, decoded: &'a mut Vec<f32>) -> &'a [f32] {
        if let Some(values) = self.format.as_f32(rows) {
            return values;
        }
        decoded.resize(rows.rows().len() * rows.d_input(), 0.0);
        self.format.decode_rows(rows, decoded);
        decoded
    }
}

/// The same product by the plainest loop over rows decoded by [`QuantFormat::decode_rows`].
pub(crate) fn linear_reference(weight: PackedMatrix<'_>, input: InputRows<'_>, output: &mut [f32]) {
    let [d_output, d_input] = weight.shape;
    let mut values = vec![0.0; d_input];
    for column in 0..d_output {
        weight.format.decode_rows(
            &WeightRows::new(weight.parts, d_input, column..column + 1),
            &mut values,
        );
        for row in 0..input.num_rows() {
            output[row * d_output + column] = values
                .iter()
                .zip(input.row(row))
                .map(|(weight, input)| weight * input)
                .sum();
        }
    }
}
