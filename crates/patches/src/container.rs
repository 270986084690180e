//! One safetensors file, mapped: its tensors as views of the file, and its metadata.
//!
//! The only file access of this crate. A tensor that lies unaligned in the file is copied.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    fs::File,
    path::Path,
};

use burn::tensor::{AllocationProperty, Bytes, DType, TensorData};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::PatchError;

pub(crate) struct Container {
    pub(crate) tensors: Vec<(String, TensorData)>,
    pub(crate) metadata: HashMap<String, String>,
}

/// Reads the file at `path`.
///
/// # Errors
/// [`PatchError::Io`] or an error of [`parse`].
pub(crate) fn read(path: &Path) -> Result<Container, PatchError> {
    let bytes = map(path).map_err(|source| PatchError::Io {
        path: path.into(),
        source,
    })?;
    parse(&bytes, path)
}

/// Reads the content of a file; `path` is for messages.
///
/// # Errors
/// [`PatchError::NotSafetensors`], [`PatchError::Container`], [`PatchError::DuplicateKey`] or
/// [`PatchError::UnsupportedDtype`].
pub(crate) fn parse(bytes: &bytes::Bytes, path: &Path) -> Result<Container, PatchError> {
    if let Some(found) = other_format(bytes) {
        return Err(PatchError::NotSafetensors {
            path: path.into(),
            found,
        });
    }
    let damaged = |source| PatchError::Container {
        path: path.into(),
        source,
    };
    let (header_bytes, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let header = &bytes[LENGTH_BYTES..LENGTH_BYTES + header_bytes];
    if let Some(key) = duplicate_key(header) {
        return Err(PatchError::DuplicateKey {
            path: path.into(),
            key,
        });
    }
    let views = SafeTensors::deserialize(bytes).map_err(damaged)?.tensors();
    let tensors = views
        .into_iter()
        .map(|(key, view)| match tensor_data(bytes, &view) {
            Some(data) => Ok((key, data)),
            None => {
                let found = view.dtype().to_string();
                Err(PatchError::UnsupportedDtype {
                    path: path.into(),
                    key,
                    found,
                })
            }
        });
    let tensors = tensors.collect::<Result<_, _>>()?;
    Ok(Container {
        tensors,
        metadata: metadata.metadata().clone().unwrap_or_default(),
    })
}

#[expect(
    unsafe_code,
    reason = "a mapped file is the only way to view its tensors without a copy"
)]
fn map(path: &Path) -> std::io::Result<bytes::Bytes> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    // SAFETY: the map is private and read-only, and bytes are only ever read through it. Another
    // process that changes the file while it is mounted can change values, which are plain numbers
    // to us: lengths and offsets are checked once and not read from the map again.
    let map = unsafe { Mmap::map(&file)? };
    Ok(bytes::Bytes::from_owner(map))
}

/// What a file that is often mistaken for safetensors looks like.
fn other_format(bytes: &[u8]) -> Option<&'static str> {
    let start = bytes[..bytes.len().min(256)].trim_ascii_start();
    let lower = start.to_ascii_lowercase();
    match start {
        [] => Some("an empty file"),
        [b'G', b'G', b'U', b'F', ..] => Some("a GGUF file"),
        [b'P', b'K', 3, 4, ..] => Some("a zip archive, as PyTorch checkpoints are"),
        [0x80, 2..=5, ..] if bytes.get(LENGTH_BYTES) != Some(&b'{') => Some("a Python pickle"),
        _ if start.starts_with(b"version https://git-lfs") => {
            Some("a git-LFS pointer (run `git lfs pull`)")
        }
        _ if lower.starts_with(b"<!doctype") || lower.starts_with(b"<html") => {
            Some("an HTML page (the download failed)")
        }
        _ => None,
    }
}

/// The first key that stands twice in the JSON object `header`; the reader keeps only the last.
fn duplicate_key(header: &[u8]) -> Option<String> {
    match serde_json::from_slice::<KeyCheck>(header) {
        Ok(KeyCheck(duplicate)) => duplicate,
        Err(_) => None,
    }
}

struct KeyCheck(Option<String>);

impl<'de> Deserialize<'de> for KeyCheck {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeyCheckVisitor)
    }
}

struct KeyCheckVisitor;

impl<'de> Visitor<'de> for KeyCheckVisitor {
    type Value = KeyCheck;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeyCheck, A::Error> {
        let mut seen = HashSet::new();
        let mut duplicate = None;
        while let Some(key) = map.next_key::<String>()? {
            let _: IgnoredAny = map.next_value()?;
            if !seen.insert(key.clone()) {
                duplicate.get_or_insert(key);
            }
        }
        Ok(KeyCheck(duplicate))
    }
}

/// The tensor as a view of `file`, or as a copy where it lies unaligned; `None` for a dtype that
/// tensors do not have here.
fn tensor_data(file: &bytes::Bytes, view: &TensorView<'_>) -> Option<TensorData> {
    let dtype = dtype_of(view.dtype())?;
    let data = view.data();
    let bytes = if data.is_empty() || data.as_ptr().align_offset(dtype.size()) != 0 {
        Bytes::from_bytes_vec(data.to_vec())
    } else {
        Bytes::from_shared(file.slice_ref(data), AllocationProperty::File)
    };
    TensorData::try_from_bytes(bytes, view.shape(), dtype).ok()
}

fn dtype_of(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I16 => DType::I16,
        Dtype::I8 => DType::I8,
        Dtype::U64 => DType::U64,
        Dtype::U32 => DType::U32,
        Dtype::U16 => DType::U16,
        Dtype::U8 | Dtype::BOOL => DType::U8,
        _ => return None,
    })
}

/// Bytes of the header's length, before the header.
const LENGTH_BYTES: usize = 8;
