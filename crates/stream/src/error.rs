//! What can go wrong between a weight file and a lease, one sentence each.
//!
//! A message names file, tensor or layer, what was found and expected, and what to do; its cause is its `source()`.

use std::{error::Error, io, path::PathBuf};

use crate::{GgufError, SinkError, source::PickleError};

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// Nothing lies at this path.
    #[error("`{}` does not exist; check the path", path.display())]
    MissingPath {
        /// What was asked for.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("`{}` cannot be read; check that it is a readable file", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file was expected, and something else lies there.
    #[error(
        "`{}` is {found}, not a regular file, so it is not opened; give the path of the weights' file",
        path.display()
    )]
    NotAFile {
        /// What was asked for.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// A folder holds no weights this crate can read.
    #[error(
        "the folder `{}` holds no weights: expected `diffusion_pytorch_model.safetensors`, \
         `model.safetensors` (or the `.index.json` of either), a `transformer` folder with one, or \
         exactly one `.safetensors`, `.gguf`, `.bin`, `.pt`, `.pth` or `.ckpt` file",
        path.display()
    )]
    NoWeights {
        /// Folder.
        path: PathBuf,
    },
    /// A folder holds several files, and none has a standard name.
    #[error(
        "the folder `{}` holds several files of weights ({}); name the one to open",
        path.display(),
        found.join(", ")
    )]
    SeveralFiles {
        /// Folder.
        path: PathBuf,
        /// File names, at most eight.
        found: Vec<String>,
    },
    /// The first bytes belong to another kind of file.
    #[error("`{file}` is {found}, not a safetensors file; {remedy}")]
    NotSafetensors {
        /// File.
        file: String,
        /// What it is.
        found: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The length word of the header cannot be right.
    #[error(
        "`{file}`: the header length is {found_bytes} bytes, expected 2 to {limit_bytes}; the file is \
         truncated or not a safetensors file, so fetch it again"
    )]
    HeaderLength {
        /// File.
        file: String,
        /// Length read.
        found_bytes: u64,
        /// The most this file can hold, never over 100 MB.
        limit_bytes: u64,
    },
    /// A file without room for a header.
    #[error("`{file}` has {found_bytes} bytes, expected 10 or more; fetch it again")]
    TooShort {
        /// File.
        file: String,
        /// Bytes of the file.
        found_bytes: usize,
    },
    /// The header is not the JSON that the format asks for.
    #[error(
        "`{file}`: the header is not a JSON object of tensors; the file is damaged, so fetch it again"
    )]
    Header {
        /// File.
        file: String,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A name stands twice.
    #[error(
        "`{file}`: the tensor `{tensor}` is listed twice; write the file again with unique names"
    )]
    DuplicateTensor {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
    },
    /// The element type is not one of the format.
    #[error(
        "`{file}`: the tensor `{tensor}` has the unknown type `{found}`; expected a safetensors type such \
         as F32, F16 or BF16, so convert the tensor"
    )]
    UnknownType {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
        /// Type read.
        found: String,
    },
    /// The shape's size in bytes does not fit the address space.
    #[error(
        "`{file}`: the tensor `{tensor}` has a shape of more bytes than a file can hold: {shape:?}; the \
         file is damaged, so fetch it again"
    )]
    ShapeOverflow {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
        /// Shape read.
        shape: Vec<usize>,
    },
    /// Byte range and shape disagree.
    #[error(
        "`{file}`: the tensor `{tensor}` has {found_bytes} bytes, but {tag} {shape:?} takes {expected_bits} \
         bits; the file is damaged, so fetch it again"
    )]
    TensorSize {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
        /// Type tag.
        tag: String,
        /// Shape.
        shape: Vec<usize>,
        /// Bytes of the range.
        found_bytes: u64,
        /// Bits of the shape.
        expected_bits: u64,
    },
    /// A byte range ends outside the file, or before it begins.
    #[error(
        "`{file}`: the tensor `{tensor}` lies at bytes {begin} to {end} of {available_bytes} data bytes; the \
         file is truncated or damaged, so fetch it again"
    )]
    OutOfBounds {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
        /// First byte.
        begin: u64,
        /// End of the range.
        end: u64,
        /// Data bytes in the file.
        available_bytes: u64,
    },
    /// Two tensors share bytes.
    #[error(
        "`{file}`: the tensors `{tensor}` and `{other}` overlap at data byte {offset}; write the file again \
         with one range for each"
    )]
    Overlap {
        /// File.
        file: String,
        /// The later tensor.
        tensor: String,
        /// The earlier tensor.
        other: String,
        /// Where the later one begins.
        offset: u64,
    },
    /// Bytes that belong to no tensor lie before one.
    #[error(
        "`{file}`: {hole_bytes} bytes before the tensor `{tensor}` at data byte {offset} belong to no \
         tensor; write the file again without holes"
    )]
    Hole {
        /// File.
        file: String,
        /// The tensor after the hole.
        tensor: String,
        /// Where the hole begins.
        offset: u64,
        /// Size of the hole.
        hole_bytes: u64,
    },
    /// Bytes that belong to no tensor lie at the end.
    #[error(
        "`{file}`: {trailing_bytes} trailing bytes follow the last tensor, expected none; cut them off or \
         write the file again"
    )]
    TrailingBytes {
        /// File.
        file: String,
        /// How many.
        trailing_bytes: u64,
    },
    /// The index of a sharded checkpoint is too long to be one.
    #[error(
        "the checkpoint index `{}` has {found_bytes} bytes, expected at most {limit_bytes}; it is damaged or \
         no index, so fetch it again",
        path.display()
    )]
    IndexLength {
        /// Index file.
        path: PathBuf,
        /// Its size.
        found_bytes: u64,
        /// Cap.
        limit_bytes: u64,
    },
    /// The index of a sharded checkpoint is not the JSON expected.
    #[error(
        "`{}` is not a checkpoint index: expected a JSON object with a `weight_map` from tensor to \
         file, so fetch it again",
        path.display()
    )]
    Index {
        /// Index file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// An index names more files than any checkpoint has.
    #[error(
        "the checkpoint index `{}` names {found} shards, expected at most {limit}; it is damaged, so fetch it \
         again",
        path.display()
    )]
    TooManyShards {
        /// Index file.
        path: PathBuf,
        /// Different names.
        found: usize,
        /// Cap.
        limit: usize,
    },
    /// A shard name leads out of the checkpoint's folder.
    #[error(
        "`{}`: the shard name `{shard}` is not a plain file name, so it is refused; fetch the checkpoint \
         again from a source you trust",
        path.display()
    )]
    ShardName {
        /// Index file.
        path: PathBuf,
        /// Name read.
        shard: String,
    },
    /// A shard that the index names is not there.
    #[error("`{}` names the shard `{shard}`, which is not beside it; fetch that file", path.display())]
    MissingShard {
        /// Index file.
        path: PathBuf,
        /// Name of the shard.
        shard: String,
    },
    /// The index and a shard disagree on where a tensor is.
    #[error(
        "`{}` places the tensor `{tensor}` in {expected}, but {found}; index and shards are not of one \
         checkpoint, so fetch them again",
        path.display()
    )]
    ShardMismatch {
        /// Index file.
        path: PathBuf,
        /// Tensor.
        tensor: String,
        /// Where the index says it is.
        expected: String,
        /// What the shards say.
        found: String,
    },
    /// The source has no tensor of this name.
    #[error("`{file}` has no tensor `{tensor}`; the source's entries list the names it has")]
    UnknownTensor {
        /// Source.
        file: String,
        /// Name asked for.
        tensor: String,
    },
    /// The buffer for a tensor has another size than the tensor.
    #[error(
        "`{file}`: the buffer for the tensor `{tensor}` has {found_bytes} bytes, expected {expected_bytes}; \
         pass one of the tensor's size"
    )]
    BufferSize {
        /// Source.
        file: String,
        /// Tensor.
        tensor: String,
        /// Buffer.
        found_bytes: u64,
        /// Tensor.
        expected_bytes: u64,
    },
    /// A GGUF file is refused.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A file could not be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// A `PyTorch` file is not read.
    #[error(transparent)]
    Pickle(Box<PickleError>),
    /// A single weight does not fit.
    #[error(
        "the layer `{layer}` alone needs {needed_bytes} bytes, more than the budget of {budget_bytes}; raise \
         the budget to at least {needed_bytes} bytes"
    )]
    LayerOverBudget {
        /// Layer.
        layer: String,
        /// Its slot.
        needed_bytes: u64,
        /// The budget.
        budget_bytes: u64,
    },
    /// A slot or reservation does not fit beside what is live now.
    #[error(
        "{needed_bytes} bytes do not fit: {live_bytes} live and {reserved_bytes} reserved of a budget of \
         {budget_bytes}; release some or raise the budget"
    )]
    NoRoom {
        /// Asked for.
        needed_bytes: u64,
        /// In slots.
        live_bytes: u64,
        /// In reservations.
        reserved_bytes: u64,
        /// The budget.
        budget_bytes: u64,
    },
    /// Nobody is left who could make room for a layer.
    #[error(
        "the layer `{layer}` needs {needed_bytes} bytes, but {live_bytes} in use and {reserved_bytes} reserved \
         of a budget of {budget_bytes} are not being released; drop a lease before acquiring the next, \
         or raise the budget to hold both"
    )]
    BudgetHeld {
        /// Layer.
        layer: String,
        /// Its slot.
        needed_bytes: u64,
        /// In slots.
        live_bytes: u64,
        /// In reservations.
        reserved_bytes: u64,
        /// The budget.
        budget_bytes: u64,
    },
    /// A slot id of another streamer.
    #[error(
        "there is no weight {index} among {num_weights}; the slot id belongs to another streamer"
    )]
    UnknownSlot {
        /// Index asked for.
        index: usize,
        /// Weights of this streamer.
        num_weights: usize,
    },
    /// A weight could not be read or decoded.
    #[error("the layer `{layer}` could not be loaded")]
    Load {
        /// Layer.
        layer: String,
        /// Cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Loading a weight panicked.
    #[error("loading the layer `{layer}` panicked: {message}; this is a bug in its weight format")]
    LoadPanicked {
        /// Layer.
        layer: String,
        /// What the panic said.
        message: String,
    },
}
