//! Some rows of a packed weight matrix.

use std::ops::Range;

use crate::{Block, Part, Parts};

/// Rows `rows` of a packed matrix `[d_output, d_input]` whose parts were validated.
#[derive(Clone, Debug)]
pub struct WeightRows<'a> {
    parts: &'a Parts,
    d_input: usize,
    rows: Range<usize>,
}

impl<'a> WeightRows<'a> {
    pub(crate) fn new(parts: &'a Parts, d_input: usize, rows: Range<usize>) -> Self {
        Self {
            parts,
            d_input,
            rows,
        }
    }

    /// The parts of the whole matrix.
    #[must_use]
    pub fn parts(&self) -> &'a Parts {
        self.parts
    }

    /// Values per row.
    #[must_use]
    pub fn d_input(&self) -> usize {
        self.d_input
    }

    /// Which rows of the matrix these are.
    #[must_use]
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Which of the matrix's values these rows are, counted row by row.
    #[must_use]
    pub fn values(&self) -> Range<usize> {
        self.rows.start * self.d_input..self.rows.end * self.d_input
    }

    /// The bytes of these rows where rows are whole blocks in the part `values`.
    #[must_use]
    pub fn blocks(&self, block: Block) -> &'a [u8] {
        let Range { start, end } = self.values();
        let bytes = self.parts.bytes(Part::VALUES);
        &bytes[start / block.len * block.bytes..end / block.len * block.bytes]
    }

    /// So many rows at a time; the last ones may be fewer.
    pub(crate) fn chunks(&self, len: usize) -> impl Iterator<Item = Self> + use<'a> {
        let (parts, d_input, end) = (self.parts, self.d_input, self.rows.end);
        self.rows()
            .step_by(len)
            .map(move |first| Self::new(parts, d_input, first..end.min(first + len)))
    }

    /// Each row alone.
    pub fn iter(&self) -> impl Iterator<Item = Self> + use<'a> {
        let (parts, d_input) = (self.parts, self.d_input);
        self.rows()
            .map(move |row| Self::new(parts, d_input, row..row + 1))
    }
}
