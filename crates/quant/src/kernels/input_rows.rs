//! A row-major matrix the kernels read: the input of a product, or weights in f32.

use std::ops::Range;

/// Rows of a row-major matrix `[rows, d_input]`, or the same columns of each.
#[derive(Clone, Copy, Debug)]
pub struct InputRows<'a> {
    values: &'a [f32],
    d_input: usize,
}

impl<'a> InputRows<'a> {
    /// The rows of `values`, `[rows, d_input]`.
    ///
    /// # Panics
    /// If `values` is not a whole number of rows.
    #[must_use]
    pub fn new(values: &'a [f32], d_input: usize) -> Self {
        assert!(d_input > 0, "rows have no values");
        assert_eq!(
            values.len() % d_input,
            0,
            "the values are not a whole number of rows"
        );
        Self { values, d_input }
    }

    /// Values per row.
    #[must_use]
    pub fn d_input(&self) -> usize {
        self.d_input
    }

    /// Number of rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.values.len() / self.d_input
    }

    /// Row `index`, `[d_input]`.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    #[inline(always)]
    pub fn row(&self, index: usize) -> &'a [f32] {
        &self.values[index * self.d_input..][..self.d_input]
    }

    /// All rows, one after the other.
    #[must_use]
    pub fn values(&self) -> &'a [f32] {
        self.values
    }

    /// The rows of `range`.
    ///
    /// # Panics
    /// If there are no such rows.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let values = &self.values[range.start * self.d_input..range.end * self.d_input];
        Self {
            values,
            d_input: self.d_input,
        }
    }

    /// The values in `columns` of the `N` rows from `first` on.
    #[inline(always)]
    pub(crate) fn group<const N: usize>(
        &self,
        first: usize,
        columns: &Range<usize>,
    ) -> [&'a [f32]; N] {
        let mut rows: [&[f32]; N] = [&[]; N];
        for (offset, row) in rows.iter_mut().enumerate() {
            *row = &self.row(first + offset)[columns.clone()];
        }
        rows
    }
}
