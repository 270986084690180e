//! Writing a weight in a format: its parts from its values, and the tensors a file keeps them in.

use bytes::Bytes;

use crate::{Part, Parts};

/// A format that weights can be written in.
pub trait Encode {
    /// Packs the matrix `values` `[d_output, d_input]` of `shape`, whose rows are whole blocks.
    ///
    /// # Panics
    /// If `values` is not of that size, or a row is no whole number of blocks.
    fn encode(&self, values: &[f32], shape: [usize; 2]) -> Parts;

    /// The tensors that a file keeps the weight `name` of logical `shape` in, in the order they are best written in:
    /// what [`find`](crate::QuantFormat::find) finds again.
    fn stored_as(&self, name: &str, shape: &[usize]) -> Vec<StoredTensor>;

    /// Values along a row that are packed together: a row must be a whole number of these.
    fn row_step(&self) -> usize;
}

/// A tensor of a file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// Its name in the file.
    pub name: String,
    /// Its type tag.
    pub tag: &'static str,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its size.
    pub num_bytes: usize,
    /// What it holds.
    pub content: StoredContent,
}

impl StoredTensor {
    /// The packed values of the weight `name`, where they are all there is.
    #[must_use]
    pub fn values(name: &str, tag: &'static str, shape: &[usize], num_bytes: usize) -> Self {
        Self {
            name: name.into(),
            tag,
            shape: shape.to_vec(),
            num_bytes,
            content: StoredContent::Part(Part::VALUES),
        }
    }
}

/// What a tensor of a packed weight holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredContent {
    /// The part of this name.
    Part(&'static str),
    /// These bytes, which follow from the weight's shape alone.
    Bytes(Bytes),
}
