//! Why a `PyTorch` file is not read, one sentence each.

use std::{fmt, path::PathBuf};

use crate::StreamError;

/// The two forms of `torch.save`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PickleForm {
    /// A zip archive with a pickle in it, since `PyTorch` 1.6.
    Zip,
    /// Pickles one after another, then raw storages.
    Legacy,
}

impl fmt::Display for PickleForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zip => "zip archive's pickle",
            Self::Legacy => "legacy pickle",
        })
    }
}

/// Errors of `PyTorch` files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PickleError {
    /// A folder holds several `PyTorch` files and nothing better.
    #[error(
        "the folder `{}` holds no safetensors file and several PyTorch files ({}); name the one to open",
        path.display(),
        found.join(", ")
    )]
    SeveralFiles {
        /// Folder.
        path: PathBuf,
        /// File names, at most eight.
        found: Vec<String>,
    },
    /// A pickle, but none of `torch.save`.
    #[error(
        "`{file}` is a bare pickle, expected a file written by `torch.save`; save its tensors as safetensors"
    )]
    NotTorch {
        /// File.
        file: String,
    },
    /// The archive's directory cannot be read.
    #[error(
        "`{file}`: the zip archive cannot be read; it is truncated or damaged, so fetch it again"
    )]
    Archive {
        /// File.
        file: String,
        /// Cause.
        source: rawzip::Error,
    },
    /// An archive that is no checkpoint.
    #[error(
        "`{file}` is a zip archive with {found} members named `data.pkl` in a folder, expected one; it is \
         not a checkpoint of `torch.save`, so give the path of the weights"
    )]
    NoPickle {
        /// File.
        file: String,
        /// How many there are.
        found: usize,
    },
    /// A member's name leads out of the archive.
    #[error(
        "`{file}`: the member `{member}` has no plain relative path as its name, so the archive is refused; \
         fetch it from a source you trust"
    )]
    MemberName {
        /// File.
        file: String,
        /// Member.
        member: String,
    },
    /// Two members have one name.
    #[error(
        "`{file}`: the member `{member}` stands twice in the archive, so it is refused; save the weights again"
    )]
    DuplicateMember {
        /// File.
        file: String,
        /// Member.
        member: String,
    },
    /// A member is not stored as it is.
    #[error(
        "`{file}`: the member `{member}` is compressed or encrypted (method {method}), expected it stored as \
         torch.save does; save the weights again with torch.save"
    )]
    Compressed {
        /// File.
        file: String,
        /// Member.
        member: String,
        /// Method of the zip format.
        method: u16,
    },
    /// Written on a big-endian machine.
    #[error(
        "`{file}` holds big-endian numbers, expected little-endian; save it again as safetensors"
    )]
    BigEndian {
        /// File.
        file: String,
    },
    /// The pickle names something that is not on the list.
    #[error(
        "`{file}`: its {form} would run `{global}`, expected only what rebuilds tensors, so it is refused and \
         nothing was run; load it in Python with `weights_only` and save its state dict as safetensors"
    )]
    Global {
        /// File.
        file: String,
        /// Form.
        form: PickleForm,
        /// Module and name.
        global: String,
    },
    /// A storage of elements that safetensors cannot hold.
    #[error(
        "`{file}`: a storage has the type `{found}`, expected plain numbers such as torch.HalfStorage; \
         convert its tensors in Python and save them as safetensors"
    )]
    StorageType {
        /// File.
        file: String,
        /// Module and name.
        found: String,
    },
    /// An instruction that `torch.save` never writes.
    #[error(
        "`{file}`: its {form} has the instruction {opcode:#04x} at byte {offset}, which torch.save does not \
         write; the file is damaged or of another program, so save it again as safetensors"
    )]
    Opcode {
        /// File.
        file: String,
        /// Form.
        form: PickleForm,
        /// Instruction.
        opcode: u8,
        /// Where in the pickle, or in a legacy file.
        offset: usize,
    },
    /// The pickle ends too early.
    #[error(
        "`{file}`: its {form} ends at byte {offset} where {needed_bytes} more bytes were expected; the file is \
         truncated, so fetch it again"
    )]
    Truncated {
        /// File.
        file: String,
        /// Form.
        form: PickleForm,
        /// Where it ends.
        offset: usize,
        /// What was to be read.
        needed_bytes: u64,
    },
    /// An instruction does not fit what came before it.
    #[error(
        "`{file}`: its {form} is malformed before byte {offset}, expected {expected}; the file is damaged, so \
         fetch it again"
    )]
    Malformed {
        /// File.
        file: String,
        /// Form.
        form: PickleForm,
        /// Where.
        offset: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// More of something than any checkpoint has.
    #[error(
        "`{file}`: its {form} has more than {limit} {what}, more than a checkpoint has; fetch it from a \
         source you trust"
    )]
    Limit {
        /// File.
        file: String,
        /// Form.
        form: PickleForm,
        /// What there is too much of.
        what: &'static str,
        /// Cap.
        limit: usize,
    },
    /// A storage is named and not there.
    #[error("`{file}`: the storage `{key}` is not in the file; it is truncated, so fetch it again")]
    MissingStorage {
        /// File.
        file: String,
        /// Storage.
        key: String,
    },
    /// A storage has another size than the pickle says.
    #[error(
        "`{file}`: the storage `{key}` has {found_bytes} bytes, expected {expected_bytes}; the file is damaged, \
         so fetch it again"
    )]
    StorageSize {
        /// File.
        file: String,
        /// Storage.
        key: String,
        /// Bytes in the file.
        found_bytes: u64,
        /// Bytes the pickle says.
        expected_bytes: u64,
    },
    /// A tensor reaches beyond its storage.
    #[error(
        "`{file}`: the tensor `{tensor}` of shape {shape:?} and strides {strides:?} at element {offset} does \
         not fit its storage of {available} elements; the file is damaged, so fetch it again"
    )]
    OutOfStorage {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
        /// Shape.
        shape: Vec<usize>,
        /// Strides, in elements.
        strides: Vec<usize>,
        /// First element.
        offset: usize,
        /// Elements of the storage.
        available: usize,
    },
    /// Expanded or shared tensors take many times what lies in the file.
    #[error(
        "`{file}`: with the tensor `{tensor}` its tensors take more than {limit_bytes} bytes, {factor} times \
         the file; save them in Python with `.contiguous()` as safetensors, if you trust the file"
    )]
    Expanded {
        /// File.
        file: String,
        /// The tensor that is too much.
        tensor: String,
        /// Cap.
        limit_bytes: u64,
        /// Cap in sizes of the file.
        factor: u64,
    },
    /// Nothing to use.
    #[error(
        "`{file}` holds no dictionary with tensors by name, only {num_skipped} other entries; save a model's \
         state dict"
    )]
    NoTensors {
        /// File.
        file: String,
        /// Entries that are no tensors.
        num_skipped: usize,
    },
}

impl From<PickleError> for StreamError {
    fn from(error: PickleError) -> Self {
        Self::Pickle(Box::new(error))
    }
}
