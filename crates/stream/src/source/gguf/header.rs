//! The header of one GGUF file, read and checked whole before anything uses it.
//!
//! ```text
//! "GGUF" | u32 version | u64 tensors | u64 keys | keys and values | tensors | padding | data
//! ```
//!
//! All numbers are little-endian. The data begin at the next multiple of `general.alignment`, 32 if there is no
//! such key. Source: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;

use super::{
    BlockTypes, GgufError, GgufValue,
    cursor::Cursor,
    metadata::{describe, read_values},
    placement::{PlacedTensor, place},
    tensor_list::read_tensors,
};
use crate::{
    StreamError,
    source::sniff::{begins_like_safetensors, sniff},
};

/// First bytes of every GGUF file.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";

/// Key of the alignment.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// Alignment of a file that doesn't say.
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;

/// A checked header: every tensor lies inside the file, on bytes of its own.
#[derive(Debug)]
pub(super) struct GgufHeader {
    pub(super) values: BTreeMap<String, GgufValue>,
    pub(super) tensors: BTreeMap<String, PlacedTensor>,
    /// Of all tensors, in bytes of the file.
    pub(super) data: Range<usize>,
}

impl GgufHeader {
    /// Reads the header of a whole file.
    pub(super) fn parse(
        file: &str,
        bytes: &Bytes,
        block_types: &BlockTypes<'_>,
    ) -> Result<Self, StreamError> {
        check_magic(file, bytes)?;
        let mut cursor = Cursor::at(file, bytes, MAGIC.len());
        check_version(&mut cursor)?;
        let num_tensors = cursor.u64(format_args!("the number of tensors"))?;
        let num_keys = cursor.u64(format_args!("the number of metadata keys"))?;
        let room = cursor.remaining_bytes();
        let limits = [room / MIN_TENSOR_BYTES, room / MIN_KEY_BYTES].map(|n| n.min(MAX_ENTRIES));
        check_count(&cursor, "tensors", num_tensors, limits[0])?;
        check_count(&cursor, "metadata keys", num_keys, limits[1])?;
        let values = read_values(&mut cursor, num_keys)?;
        let alignment = alignment(file, values.get(ALIGNMENT_KEY))?;
        let tensors = read_tensors(&mut cursor, num_tensors, block_types)?;
        let data = data(cursor.position(), bytes.len(), alignment);
        Ok(Self {
            tensors: place(file, tensors, data.len() as u64, alignment)?,
            values,
            data,
        })
    }
}

/// The alignment that a value asks for.
///
/// # Errors
/// [`GgufError::KeyValue`].
pub(crate) fn alignment(file: &str, value: Option<&GgufValue>) -> Result<u64, GgufError> {
    match value {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(GgufValue::U32(alignment)) if alignment.is_power_of_two() && *alignment >= 8 => {
            Ok((*alignment).into())
        }
        Some(other) => Err(GgufError::KeyValue {
            file: file.to_owned(),
            key: ALIGNMENT_KEY.to_owned(),
            found: describe(other),
            expected: "a 32-bit unsigned power of two, 8 or more",
        }),
    }
}

/// Refuses more of something than there can be.
pub(super) fn check_count(
    cursor: &Cursor<'_>,
    what: &'static str,
    found: u64,
    limit: u64,
) -> Result<(), GgufError> {
    if found <= limit {
        return Ok(());
    }
    Err(GgufError::Count {
        file: cursor.file(),
        what,
        found,
        limit,
    })
}

/// From the first aligned byte after the header to the end; nothing where the file ends before.
fn data(header_bytes: usize, file_bytes: usize, alignment: u64) -> Range<usize> {
    let begin = (header_bytes as u64).checked_next_multiple_of(alignment);
    let begin = begin.and_then(|begin| usize::try_from(begin).ok());
    begin.map_or(file_bytes, |begin| begin.min(file_bytes))..file_bytes
}

fn check_magic(file: &str, bytes: &Bytes) -> Result<(), GgufError> {
    if bytes.starts_with(&MAGIC) {
        return Ok(());
    }
    let first = &bytes[..bytes.len().min(64)];
    let (found, remedy) = match sniff(first) {
        Some(impostor) => (impostor.description().to_owned(), impostor.remedy()),
        None if begins_like_safetensors(first) => {
            let remedy = "give it a name that ends in `.safetensors`";
            ("a safetensors file".to_owned(), remedy)
        }
        None => {
            let magic = first[..first.len().min(MAGIC.len())].escape_ascii();
            let remedy = "check the path, or fetch it again";
            (format!("a file that begins with `{magic}`"), remedy)
        }
    };
    Err(GgufError::NotGguf {
        file: file.to_owned(),
        found,
        remedy,
    })
}

fn check_version(cursor: &mut Cursor<'_>) -> Result<(), GgufError> {
    let file = cursor.file();
    match cursor.u32(format_args!("the version"))? {
        2 | 3 => Ok(()),
        // A small number read from the wrong end.
        found if found != 0 && found.trailing_zeros() >= 16 => Err(GgufError::BigEndian { file }),
        found => Err(GgufError::Version { file, found }),
    }
}

/// Many times what the largest models have; caps what a hostile list can allocate.
pub(super) const MAX_ENTRIES: u64 = 1 << 16;

/// Length of the name, number of dimensions, type and offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// Length of the key, type and a value of one byte.
const MIN_KEY_BYTES: u64 = 8 + 4 + 1;
