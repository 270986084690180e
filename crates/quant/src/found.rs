//! Which tensors of a file a weight consists of.
//!
//! A weight in one tensor is known by its type tag. Libraries that quantize keep scales, zero points or codebooks in
//! tensors beside it, under names that follow from the weight's: each format looks for its own.

use std::error::Error;

use bytes::Bytes;

use crate::{Part, QuantError, QuantFormat, format_by_tag, formats_by_name};

/// The tensors of a file, as formats look at them.
pub trait TensorFile {
    /// Type tag and shape of the tensor `name`.
    fn head(&self, name: &str) -> Option<TensorHead<'_>>;

    /// The bytes of the tensor `name`.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
    fn read(&self, name: &str) -> Result<Bytes, Box<dyn Error + Send + Sync>>;

    /// Free text that stands in the file, or beside it, under `key`, such as `quantization_config`.
    fn text(&self, key: &str) -> Option<&str>;
}

/// What is known of a tensor before its bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorHead<'a> {
    /// The container's word for the type.
    pub tag: &'a str,
    /// Shape as stored.
    pub shape: &'a [usize],
}

/// A weight of a file: its format, and where its parts are.
#[derive(Clone, Debug)]
pub struct FoundWeight {
    /// How it is packed.
    pub format: &'static dyn QuantFormat,
    /// Logical shape: the first axis is `d_output`, the others together are `d_input`; a vector is one row.
    pub shape: Vec<usize>,
    /// The parts, the packed values first.
    pub parts: Vec<FoundPart>,
    /// Names of tensors that describe the weight and have been read: nothing needs them any more.
    pub described_by: Vec<String>,
}

/// A part of a weight, and where it is.
#[derive(Clone, Debug)]
pub enum FoundPart {
    /// A tensor of the file.
    InFile {
        /// What the format calls it.
        part: &'static str,
        /// What the file calls it.
        tensor: String,
    },
    /// A few numbers that followed from what describes the weight.
    Known(Part),
}

impl FoundPart {
    /// The tensor `tensor` of the file as the part `part`.
    #[must_use]
    pub fn in_file(part: &'static str, tensor: impl Into<String>) -> Self {
        let tensor = tensor.into();
        Self::InFile { part, tensor }
    }
}

/// The weight whose main tensor is `name`.
///
/// # Errors
/// What a format finds wrong with it, [`QuantError::UnknownFormat`] where no format takes it, and
/// [`QuantError::AmbiguousFormat`] where several do.
pub fn find_weight(name: &str, file: &dyn TensorFile) -> Result<FoundWeight, QuantError> {
    let mut found = Vec::new();
    for format in formats_by_name() {
        found.extend(format.find(name, file)?);
    }
    if found.len() > 1 {
        return Err(QuantError::AmbiguousFormat {
            name: name.into(),
            found: found.iter().map(|found| found.format.name()).collect(),
        });
    }
    match found.pop() {
        Some(found) => Ok(found),
        None => by_tag(name, file),
    }
}

/// A weight that is one tensor.
fn by_tag(name: &str, file: &dyn TensorFile) -> Result<FoundWeight, QuantError> {
    let head = file.head(name).ok_or_else(|| QuantError::MissingTensor {
        tensor: name.into(),
    })?;
    Ok(FoundWeight {
        format: format_by_tag(head.tag)?,
        shape: head.shape.to_vec(),
        parts: vec![FoundPart::in_file(Part::VALUES, name)],
        described_by: Vec::new(),
    })
}
