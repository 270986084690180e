//! Where weights come from: named tensors as bytes, type tag and shape.
//!
//! A source never learns what a format is; the tag is the container's own word for the type. Bytes are
//! little-endian and row-major, weights `[d_output, fan_in]`, as the containers store them. A view
//! from [`WeightSource::read`] may start at any address: who needs alignment reads into a
//! [`Slot`](crate::Slot).

pub(crate) mod gguf;
pub(crate) mod header;
mod mapping;
mod memory;
mod open;
mod pickle;
mod regular_file;
mod safetensors;
mod sharded;
mod sniff;
mod text_map;

use std::{collections::BTreeMap, fmt, path::PathBuf};

use bytes::Bytes;

use crate::StreamError;

pub use self::{
    gguf::GgufSource,
    header::is_safetensors_type,
    memory::MemorySource,
    open::open,
    pickle::{PickleError, PickleForm, PickleSource},
    safetensors::SafetensorsSource,
    sharded::ShardedSource,
    sniff::{Impostor, sniff},
};

/// Named tensors, read one at a time.
pub trait WeightSource: fmt::Debug + Send + Sync {
    /// Every tensor, by name.
    fn entries(&self) -> &BTreeMap<String, TensorEntry>;

    /// Free text pairs of the container.
    fn metadata(&self) -> &BTreeMap<String, String>;

    /// The same with their types, where the container has any; else texts.
    fn typed_metadata(&self) -> BTreeMap<String, gguf::GgufValue> {
        let texts = self.metadata().iter();
        let typed = texts.map(|(key, text)| (key.clone(), gguf::GgufValue::from(&**text)));
        typed.collect()
    }

    /// What to call the source in messages: its path, or `memory`.
    fn label(&self) -> String;

    /// The bytes of a tensor; a mapped file gives a view without a copy.
    ///
    /// # Errors
    /// [`StreamError::UnknownTensor`].
    fn read(&self, name: &str) -> Result<Bytes, StreamError>;

    /// Copies the bytes of a tensor into a buffer of exactly its size.
    ///
    /// # Errors
    /// [`StreamError::UnknownTensor`], [`StreamError::BufferSize`].
    fn read_into(&self, name: &str, buffer: &mut [u8]) -> Result<(), StreamError> {
        let bytes = self.read(name)?;
        if bytes.len() != buffer.len() {
            return Err(StreamError::BufferSize {
                file: self.label(),
                tensor: name.to_owned(),
                found_bytes: buffer.len() as u64,
                expected_bytes: bytes.len() as u64,
            });
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }

    /// What its owner should know, a sentence each: that it cannot be streamed, what of it was left out.
    fn notes(&self) -> &[String] {
        &[]
    }
}

/// What is known of a tensor before its bytes are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// The container's type tag, such as `BF16`.
    pub tag: String,
    /// Shape as stored.
    pub shape: Vec<usize>,
    /// Size of the stored bytes.
    pub num_bytes: u64,
    /// File that holds the bytes, if one does.
    pub file: Option<PathBuf>,
}

fn unknown_tensor(source: &dyn WeightSource, name: &str) -> StreamError {
    StreamError::UnknownTensor {
        file: source.label(),
        tensor: name.to_owned(),
    }
}
