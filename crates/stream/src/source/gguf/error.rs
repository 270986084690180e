//! Why a GGUF file is refused, one sentence each.

/// Errors of GGUF files. Each message names the file, the tensor or key, what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The first bytes are those of another kind of file.
    #[error("`{file}` is {found}, not a GGUF file; {remedy}")]
    NotGguf {
        /// File.
        file: String,
        /// What it is.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The bytes of every number stand in the other order.
    #[error(
        "`{file}` is a big-endian GGUF file, expected a little-endian one; convert it with the tool that wrote it"
    )]
    BigEndian {
        /// File.
        file: String,
    },
    /// A version of the container that isn't read.
    #[error(
        "`{file}` is of GGUF version {found}, expected 2 or 3; convert the original weights again with a current \
         program"
    )]
    Version {
        /// File.
        file: String,
        /// Version read.
        found: u32,
    },
    /// Something is longer than what is left of the file.
    #[error(
        "`{file}`: {what} at byte {offset} takes {needed_bytes} bytes, but {available_bytes} are left; the file \
         is truncated or damaged, so fetch it again"
    )]
    Truncated {
        /// File.
        file: String,
        /// What was read.
        what: String,
        /// Where it begins.
        offset: u64,
        /// What it takes, or `u64::MAX` where that is no number.
        needed_bytes: u64,
        /// What the file still has.
        available_bytes: u64,
    },
    /// Metadata and list of tensors are longer than any real ones.
    #[error(
        "`{file}`: {what} goes past byte {limit_bytes}, before which metadata and tensor list must end; the file is \
         damaged, so fetch it again"
    )]
    HeaderTooLong {
        /// File.
        file: String,
        /// What was read.
        what: String,
        /// Cap.
        limit_bytes: u64,
    },
    /// More of something than the file has room for, or than any real file has.
    #[error(
        "`{file}` announces {found} {what}, expected at most {limit}; the file is truncated or damaged, so fetch it again"
    )]
    Count {
        /// File.
        file: String,
        /// What is counted.
        what: &'static str,
        /// Number read.
        found: u64,
        /// The most that could be.
        limit: u64,
    },
    /// A text is not UTF-8.
    #[error("`{file}`: {what} is not UTF-8; the file is damaged, so fetch it again")]
    NotUtf8 {
        /// File.
        file: String,
        /// Which text.
        what: String,
    },
    /// A metadata value is of no type of the format.
    #[error(
        "`{file}`: the key `{key}` has a value of the unknown type {found}, expected 0 to 12; the file is \
         damaged, so fetch it again"
    )]
    ValueType {
        /// File.
        file: String,
        /// Metadata key.
        key: String,
        /// Type read.
        found: u32,
    },
    /// A boolean is neither 0 nor 1.
    #[error(
        "`{file}`: the key `{key}` has the boolean {found}, expected 0 or 1; the file is damaged, so fetch it again"
    )]
    Bool {
        /// File.
        file: String,
        /// Metadata key.
        key: String,
        /// Byte read.
        found: u8,
    },
    /// Arrays stand in arrays without end.
    #[error(
        "`{file}`: the key `{key}` nests arrays more than {limit} deep; the file is damaged, so fetch it again"
    )]
    ArrayDepth {
        /// File.
        file: String,
        /// Metadata key.
        key: String,
        /// Cap.
        limit: usize,
    },
    /// A key stands twice.
    #[error(
        "`{file}`: the metadata key `{key}` is listed twice; write the file again with unique keys"
    )]
    DuplicateKey {
        /// File.
        file: String,
        /// Metadata key.
        key: String,
    },
    /// A key that the container itself reads has another value than it can.
    #[error("`{file}`: the key `{key}` is {found}, expected {expected}; write the file again")]
    KeyValue {
        /// File.
        file: String,
        /// Metadata key.
        key: String,
        /// What it is.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A tensor of more dimensions than the format has.
    #[error(
        "`{file}`: the tensor `{tensor}` has {found} dimensions, expected at most 4; the file is damaged, so \
         fetch it again"
    )]
    DimensionCount {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
        /// Number read.
        found: u32,
    },
    /// A type that ggml gave up.
    #[error(
        "`{file}`: the tensor `{tensor}` has the type {id} ({name}), which ggml removed; quantize its original \
         weights again with a current program, to {successor}"
    )]
    RemovedType {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
        /// Number of the type.
        id: u32,
        /// What it was called.
        name: &'static str,
        /// What came after it.
        successor: &'static str,
    },
    /// A type that the caller does not know.
    #[error(
        "`{file}`: the tensor `{tensor}` has the unknown type {id}; quantize its original weights to a type that is \
         read here"
    )]
    UnknownType {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
        /// Number of the type.
        id: u32,
    },
    /// Rows that aren't whole blocks.
    #[error(
        "`{file}`: the tensor `{tensor}` has rows of {row_len} elements, expected a multiple of {block_len}, the \
         block of {tag}; the file is damaged, so fetch it again"
    )]
    PartialBlock {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
        /// Its type.
        tag: &'static str,
        /// Elements of a row.
        row_len: u64,
        /// Elements of a block.
        block_len: u64,
    },
    /// A tensor does not start where the alignment wants it.
    #[error(
        "`{file}`: the tensor `{tensor}` lies at data byte {offset}, expected a multiple of {alignment}; the file is \
         damaged, so fetch it again"
    )]
    Unaligned {
        /// File.
        file: String,
        /// Tensor.
        tensor: String,
        /// Where it begins.
        offset: u64,
        /// Alignment of the file.
        alignment: u64,
    },
    /// The shape noted beside a tensor is not one of it.
    #[error(
        "`{file}`: the key `{key}` is {found}, expected a list of whole numbers whose product is {num_elements}, the \
         tensor's elements; convert the file again"
    )]
    OriginalShape {
        /// File.
        file: String,
        /// Metadata key.
        key: String,
        /// What it is.
        found: String,
        /// Elements of the tensor.
        num_elements: u64,
    },
    /// A part of a split file whose name does not tell the others'.
    #[error(
        "`{file}` is part {number} of {count}, expected a name that ends in `{expected}`; give the parts the names they \
         were written with"
    )]
    PartName {
        /// File.
        file: String,
        /// Its number, from 1.
        number: u64,
        /// How many there are.
        count: u64,
        /// End of the name that tells the others.
        expected: String,
    },
    /// A part of a split file isn't there.
    #[error("`{file}` is one of {count} parts, but `{part}` is not beside it; fetch that file")]
    MissingPart {
        /// File that was asked for.
        file: String,
        /// How many there are.
        count: u64,
        /// Name of the part.
        part: String,
    },
    /// Parts are not of one file.
    #[error(
        "`{file}` is {found}, expected {expected}; the parts are not of one file, so fetch them again"
    )]
    PartMismatch {
        /// The part.
        file: String,
        /// What it says of itself.
        found: String,
        /// What its name and the others say.
        expected: String,
    },
    /// A tensor is in two parts.
    #[error(
        "`{file}`: the tensor `{tensor}` is in `{other}` too; the parts are not of one file, so fetch them again"
    )]
    PartDuplicate {
        /// The later part.
        file: String,
        /// Tensor.
        tensor: String,
        /// The earlier part.
        other: String,
    },
    /// The parts have more or fewer tensors than announced.
    #[error(
        "`{file}` and its other parts have {found} tensors, expected {expected}; the parts are not of one file, so \
         fetch them again"
    )]
    PartTensors {
        /// File that was asked for.
        file: String,
        /// Tensors of all parts.
        found: u64,
        /// Number announced.
        expected: u64,
    },
}
