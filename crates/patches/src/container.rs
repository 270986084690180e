//! One safetensors file, mapped: its tensors as views of the file, and its metadata.
//!
//! The only place that maps a file. A tensor that lies unaligned in the file is copied.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    fs::File,
    path::Path,
};

use burn::tensor::TensorData;
use bytes::Bytes;
use memmap2::Mmap;
use safetensors::SafeTensors;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::{PatchError, stored_tensor};

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
/// [`PatchError::NotSafetensors`], [`PatchError::Container`], [`PatchError::DuplicateKey`] or those of
/// [`stored_tensor`].
pub(crate) fn parse(bytes: &Bytes, path: &Path) -> Result<Container, PatchError> {
    if let Some((found, remedy)) = other_format(bytes) {
        return Err(PatchError::NotSafetensors {
            path: path.into(),
            found,
            remedy,
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
    let mut views = SafeTensors::deserialize(bytes).map_err(damaged)?.tensors();
    // The reader's order is random, and what is reported first must not be.
    views.sort_unstable_by(|(first, _), (second, _)| first.cmp(second));
    let tensors = views.into_iter().map(|(key, view)| {
        let (tag, data) = (view.dtype().to_string(), bytes.slice_ref(view.data()));
        let tensor = stored_tensor(path, &key, &tag, view.shape(), data)?;
        Ok((key, tensor))
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
fn map(path: &Path) -> std::io::Result<Bytes> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    // SAFETY: the map is private and read-only, and outlives every view through the `Bytes` that owns
    // it. Another process that rewrites the file can change values, which are plain numbers to us:
    // lengths and offsets are checked once and not read from the map again. One that truncates it ends
    // this process when a page past the new end is read (SIGBUS); that cannot be checked here, so
    // `PatchSet::load` forbids it, as every mapping loader does.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}

/// What a file that is often mistaken for safetensors looks like, and what to do.
fn other_format(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    if bytes.get(LENGTH_BYTES) == Some(&b'{') {
        return None;
    }
    let start = bytes[..bytes.len().min(256)].trim_ascii_start();
    let lower = start.to_ascii_lowercase();
    match start {
        [] => Some(("an empty file", DOWNLOAD)),
        [b'G', b'G', b'U', b'F', ..] => Some(("a GGUF file", CONVERT)),
        [b'P', b'K', 3, 4, ..] => Some(("a zip archive, as PyTorch checkpoints are", CONVERT)),
        [0x80, 2..=5, ..] => Some(("a Python pickle", CONVERT)),
        _ if lower.starts_with(b"version https://git-lfs") => {
            Some(("a git-LFS pointer", "run `git lfs pull` in its repository"))
        }
        _ if lower.starts_with(b"<!doctype") || lower.starts_with(b"<html") => {
            Some(("an HTML page", DOWNLOAD))
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

/// Bytes of the header's length, before the header.
const LENGTH_BYTES: usize = 8;
const DOWNLOAD: &str = "download it again";
const CONVERT: &str = "convert it to safetensors first";
