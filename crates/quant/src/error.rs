//! Why a packed tensor could not be read.

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuantError {
    /// No format registered under this name or container tag.
    #[error("no weight format is called `{name}`; known formats: {known:?}")]
    UnknownFormat {
        /// What was asked for.
        name: String,
        /// Registered formats.
        known: Vec<&'static str>,
    },
    /// A row is not a whole number of blocks.
    #[error("{format}: a row of {d_input} values is not a multiple of the block of {block_len}")]
    PartialBlock {
        /// Format.
        format: &'static str,
        /// Row length in values.
        d_input: usize,
        /// Block length in values.
        block_len: usize,
    },
    /// A part is not there.
    #[error("{format}: the part `{part}` is missing")]
    MissingPart {
        /// Format.
        format: &'static str,
        /// Part.
        part: &'static str,
    },
    /// A part has the wrong number of bytes.
    #[error("{format}: part `{part}` has {found} bytes, expected {expected}")]
    PartSize {
        /// Format.
        format: &'static str,
        /// Part.
        part: &'static str,
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// The shape's size in bytes does not fit the address space.
    #[error("{format}: the shape {shape:?} overflows")]
    Overflow {
        /// Format.
        format: &'static str,
        /// Shape.
        shape: [usize; 2],
    },
}
