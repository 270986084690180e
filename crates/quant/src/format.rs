//! What a format is, and the registry of formats.

use std::fmt;

use burn::tensor::DType;

use crate::{
    Parts, QuantError,
    kernels::{InputRows, OutputTile, WeightRows, dot_decoded, dot_f32},
};

/// How a weight matrix `[d_output, d_input]` is packed.
///
/// A one-part format implements the first five methods and has everything. The others have defaults that
/// go through [`decode`](Self::decode); a format overrides them to bring its own inner loops, or because
/// its values do not stand in blocks of the part `values` alone.
pub trait QuantFormat: fmt::Debug + Send + Sync + 'static {
    /// Name, as reports and `overglaze registry` show it, e.g. `q8_0`.
    fn name(&self) -> &'static str;

    /// The type tags containers use for this format, e.g. `BF16` in safetensors or `Q8_0` in GGUF.
    fn tags(&self) -> &'static [&'static str];

    /// Values per block, along the input axis.
    fn block_len(&self) -> usize;

    /// Bytes per block in the part `values`.
    fn block_bytes(&self) -> usize;

    /// Reference decoder: whole blocks of the part `values` into f32, in order.
    fn decode(&self, blocks: &[u8], values: &mut [f32]);

    /// Checks that `parts` hold a matrix of `shape` `[d_output, d_input]`.
    ///
    /// # Errors
    /// [`QuantError::PartialBlock`], [`QuantError::PartSize`], [`QuantError::MissingPart`] or
    /// [`QuantError::Overflow`].
    fn validate(&self, shape: [usize; 2], parts: &Parts) -> Result<(), QuantError> {
        let expected = values_bytes(self.name(), shape, [self.block_len(), self.block_bytes()])?;
        expect_part(self.name(), parts, Parts::VALUES, expected)
    }

    /// Decodes whole rows of a validated matrix; `values` is `[rows, d_input]`, row after row.
    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        self.decode(rows.blocks([self.block_len(), self.block_bytes()]), values);
    }

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

    /// The tensor type whose little-endian values the part `values` is, where it is nothing else.
    fn dense_dtype(&self) -> Option<DType> {
        None
    }
}

/// Bytes of the part `values` where blocks of `[values, bytes]` tile the rows of `shape`.
///
/// # Errors
/// [`QuantError::PartialBlock`] or [`QuantError::Overflow`].
pub fn values_bytes(
    format: &'static str,
    shape: [usize; 2],
    [block_len, block_bytes]: [usize; 2],
) -> Result<usize, QuantError> {
    let [d_output, d_input] = shape;
    if d_input % block_len != 0 {
        return Err(QuantError::PartialBlock {
            format,
            d_input,
            block_len,
        });
    }
    let overflow = QuantError::Overflow { format, shape };
    let num_values = d_output
        .checked_mul(d_input)
        .filter(|num| num.checked_mul(4).is_some());
    num_values
        .and_then(|num| (num / block_len).checked_mul(block_bytes))
        .ok_or(overflow)
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
    match parts.get(part).map(<[u8]>::len) {
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
    let (found, others): (Vec<_>, Vec<_>) = formats_by_name()
        .into_iter()
        .partition(|format| is_wanted(*format));
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

fn names(formats: &[&'static dyn QuantFormat]) -> Vec<&'static str> {
    formats.iter().map(|format| format.name()).collect()
}
