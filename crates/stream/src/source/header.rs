//! The header of a safetensors file, read and checked whole before anything uses it.
//!
//! ```text
//! u64 little-endian: header bytes | JSON object | data
//! {"name": {"dtype": "BF16", "shape": [d_output, d_input], "data_offsets": [begin, end]}, …,
//!  "__metadata__": {"key": "text"}}
//! ```
//!
//! Stricter than the format's own crate in two points: a name may stand once only, and every refusal names
//! tensor and numbers. Ranges must cover the data exactly: no overlap, no hole, no trailing bytes.
//! Source: the safetensors format description, <https://github.com/huggingface/safetensors#format>.

use std::{collections::BTreeMap, fmt, ops::Range};

use safetensors::Dtype;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor, value},
};

use crate::StreamError;

use super::{sniff, text_map::TextMap};

/// Longest header read, as in the format's own crate.
pub(crate) const MAX_HEADER_BYTES: u64 = 100_000_000;

/// More dimensions than any framework has; caps what a hostile shape can allocate.
const MAX_DIMENSIONS: usize = 64;

/// Where a header keeps free text pairs.
pub(crate) const METADATA: &str = "__metadata__";

/// A checked header: every range lies inside the file, and fits type and shape.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) tensors: BTreeMap<String, HeaderTensor>,
    pub(super) metadata: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(super) struct HeaderTensor {
    pub(super) tag: String,
    pub(super) shape: Vec<usize>,
    /// In bytes of the whole file.
    pub(super) range: Range<usize>,
}

impl Header {
    /// Reads the header of a whole file.
    pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Self, StreamError> {
        let json = json_bytes(file, bytes)?;
        let listed: Listed =
            serde_json::from_slice(json).map_err(|source| StreamError::Header {
                file: file.to_owned(),
                source,
            })?;
        let data = LENGTH_BYTES + json.len()..bytes.len();
        let mut tensors = BTreeMap::new();
        for (name, raw) in listed.tensors {
            let tensor = check_tensor(file, &name, raw, &data)?;
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(duplicate(file, &name));
            }
        }
        check_cover(file, &tensors, &data)?;
        Ok(Self {
            tensors,
            metadata: listed.metadata,
        })
    }
}

/// Bits of `shape` in the type `tag`; `None` inside where the product overflows.
///
/// The outer `None` means that safetensors has no such type.
pub(crate) fn num_bits(tag: &str, shape: &[usize]) -> Option<Option<usize>> {
    let deserializer: value::StrDeserializer<'_, value::Error> = tag.into_deserializer();
    let dtype = Dtype::deserialize(deserializer).ok()?;
    Some(
        shape
            .iter()
            .try_fold(dtype.bitsize(), |bits, dim| bits.checked_mul(*dim)),
    )
}

/// Whether safetensors files have a type of this tag.
#[must_use]
pub fn is_safetensors_type(tag: &str) -> bool {
    num_bits(tag, &[]).is_some()
}

pub(crate) fn duplicate(file: &str, tensor: &str) -> StreamError {
    StreamError::DuplicateTensor {
        file: file.to_owned(),
        tensor: shorten(tensor),
    }
}

const LENGTH_BYTES: usize = size_of::<u64>();

fn json_bytes<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a [u8], StreamError> {
    if let Some(impostor) = sniff(&bytes[..bytes.len().min(64)]) {
        return Err(StreamError::NotSafetensors {
            file: file.to_owned(),
            found: impostor.description(),
            remedy: impostor.remedy(),
        });
    }
    let (length, rest) = match bytes.split_first_chunk::<LENGTH_BYTES>() {
        Some((length, rest)) if rest.len() >= 2 => (u64::from_le_bytes(*length), rest),
        _ => {
            return Err(StreamError::TooShort {
                file: file.to_owned(),
                found_bytes: bytes.len(),
            });
        }
    };
    let limit_bytes = MAX_HEADER_BYTES.min(rest.len() as u64);
    usize::try_from(length)
        .ok()
        .filter(|_| (2..=limit_bytes).contains(&length))
        .and_then(|length| rest.get(..length))
        .ok_or_else(|| StreamError::HeaderLength {
            file: file.to_owned(),
            found_bytes: length,
            limit_bytes,
        })
}

fn check_tensor(
    file: &str,
    name: &str,
    raw: RawTensor,
    data: &Range<usize>,
) -> Result<HeaderTensor, StreamError> {
    let (file, tensor) = (file.to_owned(), shorten(name));
    let (begin, end) = raw.data_offsets;
    let available_bytes = data.len() as u64;
    if begin > end || end > available_bytes {
        return Err(StreamError::OutOfBounds {
            file,
            tensor,
            begin,
            end,
            available_bytes,
        });
    }
    let shape = raw.shape.0;
    let Some(bits) = num_bits(&raw.dtype, &shape) else {
        let found = shorten(&raw.dtype);
        return Err(StreamError::UnknownType {
            file,
            tensor,
            found,
        });
    };
    let Some(bits) = bits else {
        return Err(StreamError::ShapeOverflow {
            file,
            tensor,
            shape,
        });
    };
    let found_bytes = end - begin;
    if found_bytes.checked_mul(8) != Some(bits as u64) {
        return Err(StreamError::TensorSize {
            file,
            tensor,
            tag: raw.dtype,
            shape,
            found_bytes,
            expected_bits: bits as u64,
        });
    }
    let in_file = |offset: u64| {
        data.start + usize::try_from(offset).expect("the offset was compared with a slice's length")
    };
    Ok(HeaderTensor {
        tag: raw.dtype,
        shape,
        range: in_file(begin)..in_file(end),
    })
}

/// The ranges, in order, follow each other without overlap or hole and end with the file.
fn check_cover(
    file: &str,
    tensors: &BTreeMap<String, HeaderTensor>,
    data: &Range<usize>,
) -> Result<(), StreamError> {
    let mut ordered: Vec<_> = tensors.iter().collect();
    ordered.sort_by_key(|(_, tensor)| (tensor.range.start, tensor.range.end));
    let (mut covered, mut previous) = (data.start, "");
    for (name, tensor) in ordered {
        let start = tensor.range.start;
        if start < covered {
            return Err(StreamError::Overlap {
                file: file.to_owned(),
                tensor: shorten(name),
                other: shorten(previous),
                offset: (start - data.start) as u64,
            });
        }
        if start > covered {
            return Err(StreamError::Hole {
                file: file.to_owned(),
                tensor: shorten(name),
                offset: (covered - data.start) as u64,
                hole_bytes: (start - covered) as u64,
            });
        }
        (covered, previous) = (tensor.range.end, name);
    }
    match data.end - covered {
        0 => Ok(()),
        trailing => Err(StreamError::TrailingBytes {
            file: file.to_owned(),
            trailing_bytes: trailing as u64,
        }),
    }
}

/// Keeps a hostile text from filling a message.
pub(crate) fn shorten(name: &str) -> String {
    const MAX_CHARS: usize = 200;
    match name.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[derive(Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// The JSON object as it stands, in order, doubles included.
struct Listed {
    tensors: Vec<(String, RawTensor)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ListedVisitor)
    }
}

struct ListedVisitor;

impl<'de> Visitor<'de> for ListedVisitor {
    type Value = Listed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Listed, A::Error> {
        let mut tensors = Vec::new();
        let mut metadata = None;
        while let Some(name) = map.next_key::<String>()? {
            let in_entry = |error: A::Error| {
                let error = error.to_string();
                A::Error::custom(format!("`{}`: {}", shorten(&name), shorten(&error)))
            };
            if name != METADATA {
                let tensor = map.next_value().map_err(in_entry)?;
                tensors.push((name, tensor));
            } else if metadata.is_some() {
                return Err(A::Error::custom("`__metadata__` stands twice"));
            } else {
                let TextMap(pairs) = map.next_value().map_err(in_entry)?;
                metadata = Some(pairs);
            }
        }
        Ok(Listed {
            tensors,
            metadata: metadata.unwrap_or_default(),
        })
    }
}

struct Shape(Vec<usize>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ShapeVisitor).map(Self)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Vec<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a shape of at most {MAX_DIMENSIONS} dimensions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<usize>, A::Error> {
        let mut shape = Vec::new();
        while let Some(dim) = seq.next_element()? {
            if shape.len() == MAX_DIMENSIONS {
                return Err(A::Error::invalid_length(MAX_DIMENSIONS + 1, &self));
            }
            shape.push(dim);
        }
        Ok(shape)
    }
}
