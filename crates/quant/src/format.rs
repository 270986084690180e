//! What a format is, and the registry of formats.

use std::fmt;

use burn::tensor::DType;

use crate::{
    DeviceWords, Encode, FoundWeight, Part, Parts, QuantError, TensorFile,
    kernels::{InputRows, Int8Rows, OutputTile, WeightRows, dot_decoded, dot_f32},
};

/// How a weight matrix `[d_output, d_input]` is packed.
///
/// A format whose values stand in equal blocks of one tensor says so in [`block`](Self::block) and has its checks and
/// its search from there. One of several tensors brings its own [`validate`](Self::validate) and
/// [`find`](Self::find).
pub trait QuantFormat: fmt::Debug + Send + Sync + 'static {
    /// Name, as reports and `overglaze registry` show it, e.g. `q8_0`.
    fn name(&self) -> &'static str;

    /// The type tags containers use for a tensor that is a weight of this format by itself, e.g. `BF16` in
    /// safetensors or `Q8_0` in GGUF.
    fn tags(&self) -> &'static [&'static str] {
        &[]
    }

    /// The number GGUF files use for this type.
    fn ggml_type(&self) -> Option<u32> {
        None
    }

    /// Where the part `values` is nothing but equal blocks, one after another over the matrix's values row by row:
    /// how many values and how many bytes a block has.
    fn block(&self) -> Option<Block> {
        None
    }

    /// Checks that `parts` hold a matrix of `shape` `[d_output, d_input]`. What passes here is decoded without
    /// further checks.
    ///
    /// # Errors
    /// [`QuantError::PartialBlock`], [`QuantError::PartSize`], [`QuantError::MissingPart`],
    /// [`QuantError::BadPart`] or [`QuantError::Overflow`].
    fn validate(&self, shape: [usize; 2], parts: &Parts) -> Result<(), QuantError> {
        let block = self.block().unwrap_or(Block { len: 1, bytes: 1 });
        let expected = values_bytes(self.name(), shape, block)?;
        expect_part(self.name(), parts, Part::VALUES, expected)
    }

    /// Decodes whole rows of a validated matrix; `values` is `[rows, d_input]`, row after row.
    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]);

    /// Writes `input · rowsᵀ` into `output` `[input rows, weight rows]`; called where there are few input
    /// rows.
    fn dot_rows(&self, rows: &WeightRows<'_>, input: InputRows<'_>, output: &mut OutputTile<'_>) {
        match self.as_f32(rows) {
            Some(values) => dot_f32(values, input, output),
            None => dot_decoded(
                |row, values| self.decode_rows(row, values),
                rows,
                input,
                output,
            ),
        }
    }

    /// The rows as they lie in memory, where that is plain aligned f32 already.
    fn as_f32<'a>(&self, rows: &WeightRows<'a>) -> Option<&'a [f32]> {
        let _ = rows;
        None
    }

    /// The rows as signed bytes with one scale a row, for [`linear_int8`](crate::linear_int8); `None`, whatever the rows,
    /// where the format does not keep them so.
    fn int8_rows<'a>(&self, rows: &WeightRows<'a>) -> Option<Int8Rows<'a>> {
        let _ = rows;
        None
    }

    /// What a device with a memory of its own gets for a validated matrix of `shape` `[d_output, d_input]`; `None` where there
    /// are no kernels for it, and devices get decoded values.
    fn device_words(&self, shape: [usize; 2], parts: &Parts) -> Option<DeviceWords> {
        let _ = (shape, parts);
        None
    }

    /// The tensor type whose little-endian values the part `values` is, where it is nothing else.
    fn dense_dtype(&self) -> Option<DType> {
        None
    }

    /// The ways to write a weight in this format; none where it can only be read.
    fn encoders(&self) -> &'static [&'static dyn Encode] {
        &[]
    }

    /// Whether the values can be had: `false` for a format that only its own [`dot_rows`](Self::dot_rows) can read.
    /// Such a weight takes patches that need its shape alone.
    fn has_values(&self) -> bool {
        true
    }

    /// The weight whose main tensor is `name`, where `file` keeps it in this format as several tensors; `None`
    /// where it does not. A weight in one tensor is found by its tag.
    ///
    /// # Errors
    /// [`QuantError`] where the tensors are those of this format, but contradict it or each other.
    fn find(&self, name: &str, file: &dyn TensorFile) -> Result<Option<FoundWeight>, QuantError> {
        let _ = (name, file);
        Ok(None)
    }
}

/// A run of values that are packed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Values.
    pub len: usize,
    /// Bytes.
    pub bytes: usize,
}

/// Bytes of the part `values` where blocks tile the values of a matrix of `shape`, row by row.
///
/// # Errors
/// [`QuantError::PartialBlock`] or [`QuantError::Overflow`].
pub fn values_bytes(
    format: &'static str,
    shape: [usize; 2],
    block: Block,
) -> Result<usize, QuantError> {
    let overflow = || QuantError::Overflow { format, shape };
    let num_values = num_values(format, shape)?;
    if !num_values.is_multiple_of(block.len) {
        return Err(QuantError::PartialBlock {
            format,
            shape,
            block_len: block.len,
        });
    }
    (num_values / block.len)
        .checked_mul(block.bytes)
        .ok_or_else(overflow)
}

/// Values of a matrix of `shape`, of which the f32 bytes can be counted too.
///
/// # Errors
/// [`QuantError::Overflow`].
pub fn num_values(format: &'static str, shape: [usize; 2]) -> Result<usize, QuantError> {
    let [d_output, d_input] = shape;
    let num_values = d_output.checked_mul(d_input);
    num_values
        .filter(|num| num.checked_mul(size_of::<f32>()).is_some())
        .ok_or(QuantError::Overflow { format, shape })
}

/// Checks that `parts` have a part called `part` of `expected` bytes.
///
/// # Errors
/// [`QuantError::MissingPart`] or [`QuantError::PartSize`].
pub fn expect_part(
    format: &'static str,
    parts: &Parts,
    part: &'static str,
    expected: usize,
) -> Result<(), QuantError> {
    match parts.get(part).map(|part| part.bytes.len()) {
        None => Err(QuantError::MissingPart { format, part }),
        Some(found) if found != expected => Err(QuantError::PartSize {
            format,
            part,
            found,
            expected,
        }),
        Some(_) => Ok(()),
    }
}

/// The registry entry of a format.
#[derive(Debug)]
pub struct FormatEntry(pub &'static dyn QuantFormat);
inventory::collect!(FormatEntry);

/// Every registered format, sorted by name.
#[must_use]
pub fn formats_by_name() -> Vec<&'static dyn QuantFormat> {
    let mut formats: Vec<_> = inventory::iter::<FormatEntry>
        .into_iter()
        .map(|entry| entry.0)
        .collect();
    formats.sort_unstable_by_key(|format| format.name());
    formats
}

/// The format called `name`.
///
/// # Errors
/// [`QuantError::UnknownFormat`], and [`QuantError::AmbiguousFormat`] where two crates claim it.
pub fn format_by_name(name: &str) -> Result<&'static dyn QuantFormat, QuantError> {
    find(name, |format| format.name() == name)
}

/// The format a container means by the type tag `tag`.
///
/// # Errors
/// [`QuantError::UnknownFormat`], and [`QuantError::AmbiguousFormat`] where two crates claim it.
pub fn format_by_tag(tag: &str) -> Result<&'static dyn QuantFormat, QuantError> {
    find(tag, |format| format.tags().contains(&tag))
}

fn find(
    name: &str,
    is_wanted: impl Fn(&dyn QuantFormat) -> bool,
) -> Result<&'static dyn QuantFormat, QuantError> {
    only_one(name, formats_by_name(), is_wanted, |format| format.name())
}

/// The one of `entries` that is wanted; `name` is what was asked for, `name_of` what an entry is called in errors.
pub(crate) fn only_one<T: ?Sized>(
    name: &str,
    entries: Vec<&'static T>,
    is_wanted: impl Fn(&T) -> bool,
    name_of: impl Fn(&T) -> &'static str,
) -> Result<&'static T, QuantError> {
    let (found, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| is_wanted(entry));
    let names = |entries: &[&'static T]| entries.iter().map(|entry| name_of(entry)).collect();
    match found.as_slice() {
        [only] => Ok(*only),
        [] => Err(QuantError::UnknownFormat {
            name: name.into(),
            known: names(&others),
        }),
        several => Err(QuantError::AmbiguousFormat {
            name: name.into(),
            found: names(several),
        }),
    }
}
