//! Writing a weight in a format: its parts from its values, and the tensors a file keeps them in.

use std::fmt;

use bytes::Bytes;

use crate::{Part, Parts, QuantError, QuantFormat, format::only_one, formats_by_name};

/// A way to write weights in a format.
pub trait Encode: fmt::Debug + Send + Sync + 'static {
    /// The format that reads them.
    fn format(&self) -> &'static dyn QuantFormat;

    /// Name, as `overglaze quantize --format` takes it: that of the format where there is one way to write it.
    fn encoding(&self) -> &'static str {
        self.format().name()
    }

    /// Whether a weight of logical `shape` can be packed; the first axis is `d_output`.
    fn takes(&self, shape: &[usize]) -> bool;

    /// Packs the matrix `values` `[d_output, d_input]` of `shape`.
    ///
    /// # Panics
    /// If `values` is not of that size, or the weight is none that this [`takes`](Self::takes).
    fn encode(&self, values: &[f32], shape: [usize; 2]) -> Parts;

    /// The tensors that a file keeps the weight `name` of logical `shape` in, in the order they are best written in:
    /// what [`find`](QuantFormat::find) finds again.
    fn stored_as(&self, name: &str, shape: &[usize]) -> Vec<StoredTensor>;

    /// What the metadata of the file have to say of all weights written so, as key and text; `kept` are the names of
    /// the matrices that are not.
    fn file_text(&self, kept: &[&str]) -> Option<(&'static str, String)> {
        let _ = kept;
        None
    }
}

/// Every way to write weights, sorted by name.
#[must_use]
pub fn encoders_by_name() -> Vec<&'static dyn Encode> {
    let formats = formats_by_name().into_iter();
    let mut encoders: Vec<_> = formats.flat_map(QuantFormat::encoders).copied().collect();
    encoders.sort_unstable_by_key(|encoder| encoder.encoding());
    encoders
}

/// The way to write weights called `name`.
///
/// # Errors
/// [`QuantError::UnknownFormat`], and [`QuantError::AmbiguousFormat`] where two crates claim it.
pub fn encoder_by_name(name: &str) -> Result<&'static dyn Encode, QuantError> {
    let is_wanted = |encoder: &dyn Encode| encoder.encoding() == name;
    only_one(name, encoders_by_name(), is_wanted, |encoder| {
        encoder.encoding()
    })
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
    /// The packed values of the weight `name`, where their tensor has its name.
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

    /// The part `part`, numbers of 32 bits of `shape`, as the tensor `name`.
    #[must_use]
    pub fn floats(name: String, part: &'static str, shape: &[usize]) -> Self {
        Self {
            name,
            tag: "F32",
            shape: shape.to_vec(),
            num_bytes: size_of::<f32>() * shape.iter().product::<usize>(),
            content: StoredContent::Part(part),
        }
    }

    /// The same `text` for every weight of the shape, as the tensor `name` of bytes.
    #[must_use]
    pub fn text(name: String, text: String) -> Self {
        Self {
            name,
            tag: "U8",
            shape: vec![text.len()],
            num_bytes: text.len(),
            content: StoredContent::Bytes(text.into()),
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
