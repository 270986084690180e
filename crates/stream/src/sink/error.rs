//! Why a file could not be written.

use std::io;

/// Errors of writing. Each message names the file, what was found and what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// A tensor has the name under which a file keeps its metadata.
    #[error(
        "`{file}`: a tensor cannot be called `{tensor}`, which is where a file keeps its metadata; rename it"
    )]
    ReservedName {
        /// File to be written.
        file: String,
        /// The name.
        tensor: String,
    },
    /// The header of a file to be written would be longer than readers take.
    #[error(
        "`{file}`: the header would have {found_bytes} bytes, but readers take at most {limit_bytes}; write fewer \
         tensors or less metadata"
    )]
    HeaderTooLong {
        /// File to be written.
        file: String,
        /// Its header.
        found_bytes: u64,
        /// The most that is read.
        limit_bytes: u64,
    },
    /// A tensor has more dimensions than the container stores.
    #[error(
        "`{file}`: the tensor `{tensor}` has {found} dimensions, expected at most {limit}; store it with fewer and note \
         the original shape beside it"
    )]
    DimensionCount {
        /// File to be written.
        file: String,
        /// Tensor.
        tensor: String,
        /// Its dimensions.
        found: usize,
        /// The most that the container stores.
        limit: usize,
    },
    /// The sizes of all tensors do not add up to a number.
    #[error(
        "`{file}`: with the tensor `{tensor}` it would have more bytes than a file can hold; check the sizes"
    )]
    DataTooLong {
        /// File to be written.
        file: String,
        /// The tensor that is too much.
        tensor: String,
    },
    /// A tensor is written out of turn.
    #[error(
        "`{file}`: the tensor `{found}` is written, but {expected}; write the tensors in the order of the layout"
    )]
    TensorOrder {
        /// File.
        file: String,
        /// What was written.
        found: String,
        /// What was due, as a clause.
        expected: String,
    },
    /// A file is finished before every tensor was written.
    #[error(
        "`{file}`: {count} tensors are not written yet, the first is `{first}`; write them before `finish`"
    )]
    Unfinished {
        /// File.
        file: String,
        /// The first that is missing.
        first: String,
        /// How many are missing.
        count: usize,
    },
    /// The operating system refused to write.
    #[error("`{file}` cannot be written; check the free space and the permissions")]
    Write {
        /// File.
        file: String,
        /// Cause.
        source: io::Error,
    },
}
