//! Products of signed bytes: the input's rows are rounded to bytes too, but for columns with outliers.
//!
//! `output[r, j] = (Σᵢ q[r, i] · w[j, i]) · absmax[r] / 127 · scale[j] + Σₒ input[r, o] · w[j, o] · scale[j]`, `i` over the
//! columns without outliers, `o` over those with them, and `q[r, i] = round(input[r, i] · (127 / absmax[r]))`. See
//! [`linear_int8`](crate::linear_int8), which says where this comes from.

use half::{f16, slice::HalfFloatSliceExt, vec::HalfFloatVecExt};
use pulp::Arch;
use rayon::iter::ParallelIterator;

use crate::kernels::{InputRows, OutputGrid, OutputTile, PackedMatrix, WeightRows};

/// Some rows of a matrix of signed bytes: `value[j, i] = codes[j, i] · scales[j]`.
#[derive(Clone, Debug)]
pub struct Int8Rows<'a> {
    /// Signed bytes, `[rows, d_input]`.
    pub codes: &'a [u8],
    /// `[rows]`.
    pub scales: Vec<f32>,
}

/// `output = input · weightᵀ`: `[rows, d_input] -> [rows, d_output]`; columns with an input of at least `threshold` in
/// size, if there is one, have outliers.
///
/// # Panics
/// If the weight's format has no rows of signed bytes.
pub(crate) fn linear_int8(
    weight: PackedMatrix<'_>,
    input: InputRows<'_>,
    output: &mut [f32],
    threshold: Option<f32>,
) {
    let [d_output, d_input] = weight.shape;
    let input = Rounded::new(input, threshold);
    OutputGrid::new(output, d_output, TILE)
        .into_par_tiles()
        .for_each(|mut tile| {
            let rows = WeightRows::new(weight.parts, d_input, tile.columns());
            let rows = weight.format.int8_rows(&rows);
            let rows = rows.expect("the caller asked the format");
            Arch::new().dispatch(|| input.multiply(&rows, &mut tile));
        });
}

/// An input, rounded.
struct Rounded {
    d_input: usize,
    /// `[rows, d_input]`, zero in columns with outliers. Vectors multiply numbers of 16 bits.
    codes: Vec<i16>,
    /// `absmax / 127` of each row.
    scales: Vec<f32>,
    outliers: Outliers,
}

impl Rounded {
    fn new(input: InputRows<'_>, threshold: Option<f32>) -> Self {
        let d_input = input.d_input();
        let halves = Vec::<f16>::from_f32_slice(input.values()).to_f32_vec();
        let has_outlier = outlier_columns(&halves, d_input, threshold);
        let mut codes = Vec::with_capacity(halves.len());
        let mut scales = Vec::with_capacity(input.num_rows());
        for row in halves.chunks_exact(d_input) {
            let absmax = absmax(row, threshold);
            let factor = 127.0 / absmax;
            codes.extend(row.iter().zip(&has_outlier).map(
                |(value, has_outlier)| match has_outlier {
                    true => 0,
                    false => rounded(value * factor),
                },
            ));
            scales.push(absmax / 127.0);
        }
        Self {
            d_input,
            codes,
            scales,
            outliers: Outliers::new(input, &has_outlier),
        }
    }

    #[inline(always)]
    fn multiply(&self, weight: &Int8Rows<'_>, output: &mut OutputTile<'_>) {
        let (first, num_rows) = (output.rows().start, output.rows().len());
        let rows = weight.codes.chunks_exact(self.d_input);
        for (column, (codes, scale)) in rows.zip(&weight.scales).enumerate() {
            for offset in 0..num_rows {
                let row = first + offset;
                let input = &self.codes[row * self.d_input..][..self.d_input];
                let sum = dot(input, codes) * self.scales[row] * scale;
                let sum = sum + self.outliers.dot(row, codes, *scale);
                output.write(offset, column, [sum]);
            }
        }
    }
}

/// What is multiplied as it is.
struct Outliers {
    columns: Vec<usize>,
    /// `[rows, columns]`.
    values: Vec<f32>,
}

impl Outliers {
    fn new(input: InputRows<'_>, has_outlier: &[bool]) -> Self {
        let columns: Vec<_> = (0..input.d_input())
            .filter(|column| has_outlier[*column])
            .collect();
        let mut values = Vec::with_capacity(input.num_rows() * columns.len());
        for row in 0..input.num_rows() {
            let row = input.row(row);
            values.extend(columns.iter().map(|column| row[*column]));
        }
        Self { columns, values }
    }

    #[inline(always)]
    fn dot(&self, row: usize, codes: &[u8], scale: f32) -> f32 {
        let len = self.columns.len();
        let values = &self.values[row * len..][..len];
        let products = values.iter().zip(&self.columns).map(|(value, column)| {
            let weight = f32::from(codes[*column].cast_signed()) * scale;
            value * weight
        });
        products.sum()
    }
}

/// Which columns of `values` `[rows, d_input]` have outliers.
fn outlier_columns(values: &[f32], d_input: usize, threshold: Option<f32>) -> Vec<bool> {
    let mut has_outlier = vec![false; d_input];
    for row in values.chunks_exact(d_input) {
        for (has_outlier, value) in has_outlier.iter_mut().zip(row) {
            *has_outlier |= is_outlier(value.abs(), threshold);
        }
    }
    has_outlier
}

/// The largest size among those of a row that are no outliers themselves; NaN where one of them is.
fn absmax(row: &[f32], threshold: Option<f32>) -> f32 {
    row.iter()
        .map(|value| value.abs())
        .filter(|size| !is_outlier(*size, threshold))
        .fold(0.0, |max, size| {
            if size > max || size.is_nan() {
                size
            } else {
                max
            }
        })
}

fn is_outlier(size: f32, threshold: Option<f32>) -> bool {
    threshold.is_some_and(|threshold| size >= threshold)
}

/// The nearest integer; zero for NaN, which rows without any size and rows without a finite one give.
#[expect(clippy::cast_possible_truncation, reason = "at most 127 in size")]
fn rounded(value: f32) -> i16 {
    value.round_ties_even() as i16
}

/// The dot product of integers, exact but for its rounding to f32.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "one rounding of an exact sum")]
fn dot(input: &[i16], codes: &[u8]) -> f32 {
    let chunks = input.chunks(CHUNK_LEN).zip(codes.chunks(CHUNK_LEN));
    let sums = chunks.map(|(input, codes)| {
        let products = input
            .iter()
            .zip(codes)
            .map(|(input, code)| i32::from(*input) * i32::from(code.cast_signed()));
        i64::from(products.sum::<i32>())
    });
    sums.sum::<i64>() as f32
}

/// So many products of bytes, at most 2^14 each, fit an i32.
const CHUNK_LEN: usize = 1 << 16;
/// Rows and columns of a tile: so many input rows stay in the second-level cache while weights pass by.
const TILE: [usize; 2] = [64, 32];
