//! The product of an input with a packed weight, tile by tile.

use std::cell::RefCell;

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
            .for_each(|tile| weight.multiply(plan.path, input, tile));
    } else {
        grid.into_tiles()
            .for_each(|tile| weight.multiply(plan.path, input, tile));
    }
}

impl PackedMatrix<'_> {
    fn multiply(&self, path: Path, input: InputRows<'_>, mut output: OutputTile<'_>) {
        let rows = WeightRows::new(self.parts, self.shape[1], output.columns());
        let input = input.slice(output.rows());
        if !self.format.has_values() {
            return self.format.dot_rows(&rows, input, &mut output);
        }
        match path {
            Path::Dot => self.format.dot_rows(&rows, input, &mut output),
            Path::Block => self.with_f32(&rows, |weight| dot_f32(weight, input, &mut output)),
            Path::Gemm => self.with_f32(&rows, |weight| output.multiply(input, weight)),
        }
    }

    /// Runs `product` on the rows as f32: in place, or decoded into this thread's buffer.
    fn with_f32(&self, rows: &WeightRows<'_>, product: impl FnOnce(&[f32])) {
        if let Some(values) = self.format.as_f32(rows) {
            return product(values);
        }
        let len = rows.rows().len() * rows.d_input();
        let mut decoded = DECODED.take();
        if decoded.len() < len {
            decoded.resize(len, 0.0);
        }
        self.format.decode_rows(rows, &mut decoded[..len]);
        product(&decoded[..len]);
        DECODED.set(decoded);
    }
}

thread_local! {
    /// One decoded tile. It stays, because fresh memory costs a page fault per page.
    static DECODED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
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
