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
    /// Several formats are registered under this name or container tag.
    #[error(
        "`{name}` stands for {} registered weight formats ({}); link only one of the crates that bring them",
        found.len(),
        found.join(", ")
    )]
    AmbiguousFormat {
        /// What was asked for.
        name: String,
        /// Names of those that claim it.
        found: Vec<&'static str>,
    },
    /// The values are not a whole number of blocks.
    #[error(
        "a {format} weight of shape {shape:?} is not a whole number of its blocks of {block_len} values; check its \
         shape, or choose another format"
    )]
    PartialBlock {
        /// Format.
        format: &'static str,
        /// Shape.
        shape: [usize; 2],
        /// Block length in values.
        block_len: usize,
    },
    /// A part is not there.
    #[error(
        "a {format} weight has no part `{part}`; add it, or choose the format that its parts belong to"
    )]
    MissingPart {
        /// Format.
        format: &'static str,
        /// Part.
        part: &'static str,
    },
    /// A part has the wrong number of bytes.
    #[error(
        "the part `{part}` of a {format} weight has {found} bytes, expected {expected}; check its shape and \
         format"
    )]
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
    /// A part is not what the format needs.
    #[error(
        "the part `{part}` of a {format} weight {found}, expected {expected}; quantize the weight again"
    )]
    BadPart {
        /// Format.
        format: &'static str,
        /// Part.
        part: &'static str,
        /// What is wrong with it, as a clause.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A tensor is not in the file.
    #[error("the file has no tensor `{tensor}`; check its name")]
    MissingTensor {
        /// Name.
        tensor: String,
    },
    /// A tensor that belongs to a weight cannot be read.
    #[error("the tensor `{tensor}`, which belongs to a {format} weight, cannot be read")]
    Read {
        /// Format.
        format: &'static str,
        /// Name.
        tensor: String,
        /// Cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What describes a weight cannot be understood.
    #[error(
        "`{place}`, which describes a {format} weight, {found}, expected {expected}; quantize the weight again"
    )]
    BadDescription {
        /// Format.
        format: &'static str,
        /// Name of the tensor or text.
        place: String,
        /// What is wrong with it, as a clause.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// The format does not keep a weight's rows as signed bytes.
    #[error(
        "a {format} weight has no rows of signed bytes with one scale each, as a product in integers needs; multiply it \
         by the default product"
    )]
    NoInt8Rows {
        /// Format.
        format: &'static str,
    },
    /// No size can be compared with this threshold.
    #[error(
        "an outlier threshold of {threshold} means nothing; choose a positive one, or 0 for no outliers"
    )]
    Threshold {
        /// What was asked for.
        threshold: f32,
    },
    /// The shape's size in bytes does not fit the address space.
    #[error("a {format} weight of shape {shape:?} is larger than memory can be; check its shape")]
    Overflow {
        /// Format.
        format: &'static str,
        /// Shape.
        shape: [usize; 2],
    },
}
