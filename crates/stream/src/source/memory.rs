//! Tensors that are already in memory: embedded files, tests, and whole-file readers.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;

use crate::StreamError;

use super::{
    TensorEntry, WeightSource,
    header::{self, Header},
    unknown_tensor,
};

/// Named tensors in memory.
#[derive(Clone)]
pub struct MemorySource {
    label: String,
    entries: BTreeMap<String, TensorEntry>,
    tensors: BTreeMap<String, Bytes>,
    metadata: BTreeMap<String, String>,
}

impl MemorySource {
    /// Without tensors; the label names it in messages.
    #[must_use]
    pub fn new(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            entries: BTreeMap::new(),
            tensors: BTreeMap::new(),
            metadata: BTreeMap::new(),
        }
    }

    /// From the bytes of a safetensors file, such as an embedded one; tensors are views into them.
    ///
    /// # Errors
    /// As [`SafetensorsSource::open`](super::SafetensorsSource::open).
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a shared handle, and the source keeps views into it"
    )]
    pub fn from_safetensors(label: impl Into<String>, file: Bytes) -> Result<Self, StreamError> {
        let mut source = Self::new(label);
        let header = Header::parse(&source.label, &file)?;
        source.metadata = header.metadata;
        for (name, tensor) in header.tensors {
            source.insert(name, tensor.tag, tensor.shape, file.slice(tensor.range))?;
        }
        Ok(source)
    }

    /// Adds a tensor. The size is checked where the tag is a safetensors type.
    ///
    /// # Errors
    /// [`StreamError::DuplicateTensor`], [`StreamError::ShapeOverflow`], [`StreamError::TensorSize`].
    pub fn insert(
        &mut self,
        name: impl Into<String>,
        tag: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        bytes: Bytes,
    ) -> Result<(), StreamError> {
        let name = name.into();
        let entry = TensorEntry {
            tag: tag.into(),
            shape: shape.into(),
            num_bytes: bytes.len() as u64,
            file: None,
        };
        self.check(&name, &entry)?;
        self.entries.insert(name.clone(), entry);
        self.tensors.insert(name, bytes);
        Ok(())
    }

    /// Sets a text pair.
    pub fn set_metadata(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.metadata.insert(key.into(), value.into());
    }

    fn check(&self, name: &str, entry: &TensorEntry) -> Result<(), StreamError> {
        if self.entries.contains_key(name) {
            return Err(header::duplicate(&self.label, name));
        }
        let (file, tensor) = (self.label.clone(), name.to_owned());
        let shape = entry.shape.clone();
        match header::num_bits(&entry.tag, &shape) {
            Some(None) => Err(StreamError::ShapeOverflow {
                file,
                tensor,
                shape,
            }),
            Some(Some(bits)) if entry.num_bytes.checked_mul(8) != Some(bits as u64) => {
                Err(StreamError::TensorSize {
                    file,
                    tensor,
                    tag: entry.tag.clone(),
                    shape,
                    found_bytes: entry.num_bytes,
                    expected_bits: bits as u64,
                })
            }
            _ => Ok(()),
        }
    }
}

impl WeightSource for MemorySource {
    fn entries(&self) -> &BTreeMap<String, TensorEntry> {
        &self.entries
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
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

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySource")
            .field("label", &self.label)
            .field("num_tensors", &self.entries.len())
            .finish_non_exhaustive()
    }
}
