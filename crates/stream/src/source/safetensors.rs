//! One mapped safetensors file; views of its tensors cost no copy.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::StreamError;

use super::{TensorEntry, WeightSource, header::Header, mapping::map_file, unknown_tensor};

/// A safetensors file, mapped into memory.
///
/// The file must not be cut or rewritten while it is open: the views would see it, and reading past a new
/// end ends the process.
pub struct SafetensorsSource {
    path: PathBuf,
    map: Bytes,
    entries: BTreeMap<String, TensorEntry>,
    ranges: BTreeMap<String, Range<usize>>,
    metadata: BTreeMap<String, String>,
}

impl SafetensorsSource {
    /// Maps a file and checks its header; no tensor is read.
    ///
    /// # Errors
    /// Where the path is no regular file, or the file cannot be read, is of another kind, or has a header
    /// that doesn't fit it.
    pub fn open(path: &Path) -> Result<Self, StreamError> {
        Self::from_map(path, map_file(path)?)
    }

    /// A file that is mapped already.
    pub(super) fn from_map(path: &Path, map: Bytes) -> Result<Self, StreamError> {
        let header = Header::parse(&path.display().to_string(), &map)?;
        let mut entries = BTreeMap::new();
        let mut ranges = BTreeMap::new();
        for (name, tensor) in header.tensors {
            let entry = TensorEntry {
                tag: tensor.tag,
                shape: tensor.shape,
                num_bytes: tensor.range.len() as u64,
                file: Some(path.to_owned()),
            };
            entries.insert(name.clone(), entry);
            ranges.insert(name, tensor.range);
        }
        Ok(Self {
            path: path.to_owned(),
            map,
            entries,
            ranges,
            metadata: header.metadata,
        })
    }
}

impl WeightSource for SafetensorsSource {
    fn entries(&self) -> &BTreeMap<String, TensorEntry> {
        &self.entries
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn label(&self) -> String {
        self.path.display().to_string()
    }

    fn read(&self, name: &str) -> Result<Bytes, StreamError> {
        match self.ranges.get(name) {
            Some(range) => Ok(self.map.slice(range.clone())),
            None => Err(unknown_tensor(self, name)),
        }
    }
}

impl fmt::Debug for SafetensorsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SafetensorsSource")
            .field("path", &self.path)
            .field("num_tensors", &self.entries.len())
            .finish_non_exhaustive()
    }
}
