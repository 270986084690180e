//! `PyTorch` files (`.bin`, `.pt`, `.pth`, `.ckpt`), read whole into memory without running anything.
//!
//! A pickle is a program: loading one with Python runs what it says. Here it is read by a machine of its own that
//! knows the instructions `torch.save` writes and a list of names it stands in for ([`globals`]). Anything else is
//! refused by its name. A checkpoint of Lightning whose callbacks need names of their own is refused so too; load
//! such a file in Python with `torch.load(path, weights_only=True)`, after `torch.serialization.add_safe_globals`
//! if you trust it, and save its state dict with `safetensors.torch.save_file`.
//!
//! # Why no crate does this
//! `pytorch-reader` 0.22, the reader of `burn-store`, keeps unknown calls as opaque values where this project
//! wants them refused by name; it inflates compressed members, reads up to 10 GiB into a tensor that a stride of
//! 0 expands from a few bytes, has no float8, and brings two archive libraries and a dozen more crates to a leaf
//! that has six. The reader in `candle-core`, from which that one grew, comes with the whole framework;
//! `serde-pickle` has no persistent ids, by which storages are named; `repugnant-pickle` scrapes what it can and is
//! not kept up. The archive itself is read
//! by `rawzip`, which has no dependencies and no unsafe code, and inflates nothing.

mod archive;
mod calls;
mod cursor;
mod error;
pub(super) mod folder;
mod globals;
mod legacy;
mod machine;
mod opcodes;
mod stack;
mod state_dict;
mod tensors;
mod values;

use std::{collections::BTreeMap, io::Read, path::Path};

use bytes::Bytes;

use crate::StreamError;

use super::{Impostor, MemorySource, TensorEntry, WeightSource, regular_file, sniff};

use self::{
    archive::Archive,
    cursor::Cursor,
    machine::unpickle,
    tensors::{Reader, Storages},
    values::Pickled,
};

pub use self::error::{PickleError, PickleForm};

/// The tensors of a `PyTorch` file, in memory; the whole file stays there as long as they do.
///
/// Which dictionary is taken for the weights: one without tensors of its own that holds a dictionary `state_dict`,
/// `model_state_dict`, `model`, `module`, `params_ema` or `params` stands for the first of these that it
/// holds. Nested dictionaries give names joined by `.`; what is no tensor is skipped and counted.
#[derive(Clone, Debug)]
pub struct PickleSource {
    tensors: MemorySource,
    notes: Vec<String>,
}

impl PickleSource {
    /// Reads a file whole.
    ///
    /// # Errors
    /// Where the path is no regular file or cannot be read, and as [`PickleSource::from_bytes`].
    pub fn open(path: &Path) -> Result<Self, StreamError> {
        let refused = |source| StreamError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = regular_file::open(path)?;
        let mut whole = Vec::new();
        file.read_to_end(&mut whole).map_err(refused)?;
        Self::from_bytes(path.display().to_string(), Bytes::from(whole))
    }

    /// From the bytes of a file; tensors are views into them where they are contiguous.
    ///
    /// # Errors
    /// [`StreamError::Pickle`] where they are not the file of a state dict, would run code, or do not fit together;
    /// [`StreamError::DuplicateTensor`].
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a shared handle, and the source keeps views into it"
    )]
    pub fn from_bytes(label: impl Into<String>, file: Bytes) -> Result<Self, StreamError> {
        let label = label.into();
        if legacy::is_legacy(&file) {
            let mut cursor = Cursor::new(&label, PickleForm::Legacy, &file);
            let (pickled, storages) = legacy::read(&mut cursor, &file)?;
            return collect(&cursor, &pickled, &storages, file.len());
        }
        if sniff(&file[..file.len().min(64)]) == Some(Impostor::Pickle) {
            return Err(PickleError::NotTorch { file: label }.into());
        }
        let archive = Archive::read(&label, &file)?;
        let mut cursor = Cursor::new(&label, PickleForm::Zip, &archive.pickle);
        let pickled = unpickle(&mut cursor)?;
        collect(&cursor, &pickled, &archive.storages, file.len())
    }
}

impl WeightSource for PickleSource {
    fn entries(&self) -> &BTreeMap<String, TensorEntry> {
        self.tensors.entries()
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        self.tensors.metadata()
    }

    fn label(&self) -> String {
        self.tensors.label()
    }

    fn read(&self, name: &str) -> Result<Bytes, StreamError> {
        self.tensors.read(name)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

fn collect(
    cursor: &Cursor<'_>,
    pickled: &Pickled<'_>,
    storages: &Storages,
    file_bytes: usize,
) -> Result<PickleSource, StreamError> {
    let found = state_dict::find(pickled, cursor)?;
    if found.tensors.is_empty() {
        return Err(StreamError::from(PickleError::NoTensors {
            file: cursor.file().to_owned(),
            num_skipped: found.num_skipped,
        }));
    }
    let mut reader = Reader::new(cursor.file(), file_bytes, storages);
    let mut tensors = MemorySource::new(cursor.file());
    for (name, tensor) in found.tensors {
        let dense = reader.read(&name, &pickled.values, tensor)?;
        let expected = "a size and a stride for each dimension of a tensor, at most 64";
        let dense = dense.ok_or_else(|| cursor.malformed(expected))?;
        tensors.insert(name, dense.tag, dense.shape, dense.bytes)?;
    }
    Ok(PickleSource {
        tensors,
        notes: notes(cursor.file(), found.num_skipped),
    })
}

fn notes(file: &str, num_skipped: usize) -> Vec<String> {
    let mut notes = vec![format!(
        "`{file}` is a PyTorch file: it was loaded whole into memory and cannot be streamed; convert it to \
         safetensors"
    )];
    if num_skipped > 0 {
        notes.push(format!(
            "`{file}`: {num_skipped} entries beside the weights were skipped"
        ));
    }
    notes
}
