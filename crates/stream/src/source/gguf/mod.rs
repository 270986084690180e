//! GGUF files of version 2 and 3, mapped; one file, or the parts of a split one.
//!
//! The container has types by number, which the caller knows, and typed metadata. Tensors, texts and arrays are
//! views into the file.

mod array;
mod block_type;
mod cursor;
mod error;
pub(crate) mod header;
mod metadata;
mod original_shape;
mod part;
mod placement;
mod read;
pub(super) mod split;
pub(crate) mod tensor_list;
mod text;
mod value;
mod value_type;

use std::{collections::BTreeMap, fmt, path::Path};

use bytes::Bytes;

use crate::StreamError;

use self::{original_shape::original_shape, part::Part, placement::PlacedTensor};
use super::{TensorEntry, WeightSource, mapping::map_file, unknown_tensor};

pub use self::{
    array::GgufArray,
    block_type::{BlockType, BlockTypes},
    error::GgufError,
    text::GgufText,
    value::GgufValue,
    value_type::GgufType,
};

/// A GGUF file, or all parts of a split one, mapped into memory.
///
/// The file must not be cut or rewritten while it is open: the views would see it, and reading past a new
/// end ends the process.
pub struct GgufSource {
    label: String,
    entries: BTreeMap<String, TensorEntry>,
    tensors: BTreeMap<String, Bytes>,
    values: BTreeMap<String, GgufValue>,
    metadata: BTreeMap<String, String>,
}

impl GgufSource {
    /// Maps a file, and the others it is split into, and checks their headers; no tensor is read.
    ///
    /// # Errors
    /// [`GgufError`], or where a file cannot be read, a name stands twice, or tensors do not lie in the file, each on
    /// bytes of its own.
    pub fn open(path: &Path, block_types: &BlockTypes<'_>) -> Result<Self, StreamError> {
        Self::from_map(path, map_file(path)?, block_types)
    }

    /// From the bytes of a whole file, such as an embedded one; the label names it in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open); a part of a split file is refused, for nothing tells where the others are.
    pub fn from_bytes(
        label: impl Into<String>,
        file: Bytes,
        block_types: &BlockTypes<'_>,
    ) -> Result<Self, StreamError> {
        let part = Part::parse(label.into(), file, block_types)?;
        match part.place() {
            Some(place) => Err(split::misnamed(&part.label, place).into()),
            None => Self::join(vec![part]),
        }
    }

    /// A file that is mapped already.
    pub(super) fn from_map(
        path: &Path,
        map: Bytes,
        block_types: &BlockTypes<'_>,
    ) -> Result<Self, StreamError> {
        let part = Part::mapped(path, map, block_types)?;
        Self::join(split::with_others(path, part, block_types)?)
    }

    /// Typed metadata by key; those of a split file are its first part's.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, GgufValue> {
        &self.values
    }

    fn join(mut parts: Vec<Part>) -> Result<Self, StreamError> {
        let first = parts.first_mut().expect("a file has at least one part");
        let values = std::mem::take(&mut first.header.values);
        let mut source = Self {
            label: first.label.clone(),
            entries: BTreeMap::new(),
            tensors: BTreeMap::new(),
            metadata: metadata::texts(&first.label, &values)?,
            values,
        };
        for part in parts {
            source.add(part)?;
        }
        Ok(source)
    }

    fn add(&mut self, part: Part) -> Result<(), StreamError> {
        let data = part.map.slice(part.header.data);
        for (name, PlacedTensor { listed, range }) in part.header.tensors {
            if let Some(entry) = self.entries.get(&name) {
                return Err(split::duplicate(&part.label, &name, entry).into());
            }
            let noted = original_shape(&part.label, &self.values, &name, listed.num_elements)?;
            let entry = TensorEntry {
                tag: listed.tag.to_owned(),
                shape: noted.unwrap_or(listed.shape),
                num_bytes: listed.num_bytes,
                file: part.path.clone(),
            };
            self.entries.insert(name.clone(), entry);
            self.tensors.insert(name, data.slice(range));
        }
        Ok(())
    }
}

impl WeightSource for GgufSource {
    fn entries(&self) -> &BTreeMap<String, TensorEntry> {
        &self.entries
    }

    /// [Values](Self::values) as text, without long texts and arrays.
    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn typed_metadata(&self) -> BTreeMap<String, GgufValue> {
        self.values.clone()
    }

    fn label(&self) -> String {
        self.label.clone()
    }

    fn read(&self, name: &str) -> Result<Bytes, StreamError> {
        self.tensors
            .get(name)
            .cloned()
            .ok_or_else(|| unknown_tensor(self, name))
    }
}

impl fmt::Debug for GgufSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufSource")
            .field("label", &self.label)
            .field("num_tensors", &self.entries.len())
            .finish_non_exhaustive()
    }
}
