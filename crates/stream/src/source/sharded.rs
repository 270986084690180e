//! A checkpoint split over several safetensors files, or several of `PyTorch`, joined by an index.
//!
//! ```text
//! {"metadata": {…}, "weight_map": {"tensor": "model-00001-of-00002.safetensors", …}}
//! ```
//!
//! Index and shards must agree in both directions, a name stands once, and a shard name is a plain file name
//! beside the index. What a shard is, its content says, as that of a file by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::Read,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use serde::Deserialize;

use crate::StreamError;

use super::{
    TensorEntry, WeightSource,
    header::{self, shorten},
    mapping::map_file,
    open::open_tensors,
    regular_file,
    text_map::TextMap,
    unknown_tensor,
};

/// Longest index read: as for a safetensors header.
const MAX_INDEX_BYTES: u64 = header::MAX_HEADER_BYTES;

/// Many times what the largest checkpoints have; each costs a mapping, of which a system has only so many.
const MAX_SHARDS: usize = 4096;

const MAX_NAME_BYTES: usize = 255;

/// Several files as one source.
pub struct ShardedSource {
    index_path: PathBuf,
    entries: BTreeMap<String, TensorEntry>,
    weight_map: BTreeMap<String, String>,
    shards: Shards,
    metadata: BTreeMap<String, String>,
    notes: Vec<String>,
}

type Shards = BTreeMap<String, Arc<dyn WeightSource>>;

impl ShardedSource {
    /// Reads an index, and maps and checks every shard; those of `PyTorch` are read whole.
    ///
    /// # Errors
    /// Where index or shards cannot be read, or do not agree.
    pub fn open(index_path: &Path) -> Result<Self, StreamError> {
        let weight_map = read_weight_map(index_path)?;
        let shards = open_shards(index_path, &weight_map)?;
        check_map(index_path, &weight_map, &shards)?;
        check_shards(index_path, &weight_map, &shards)?;
        let mut entries = BTreeMap::new();
        let mut metadata = BTreeMap::new();
        let mut notes = Vec::new();
        for shard in shards.values() {
            entries.extend(shard.entries().clone());
            metadata.extend(shard.metadata().clone());
            notes.extend(shard.notes().iter().cloned());
        }
        Ok(Self {
            index_path: index_path.to_owned(),
            entries,
            weight_map,
            shards,
            metadata,
            notes,
        })
    }
}

impl WeightSource for ShardedSource {
    fn entries(&self) -> &BTreeMap<String, TensorEntry> {
        &self.entries
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn label(&self) -> String {
        self.index_path.display().to_string()
    }

    fn read(&self, name: &str) -> Result<Bytes, StreamError> {
        let shard = self
            .weight_map
            .get(name)
            .and_then(|shard| self.shards.get(shard));
        match shard {
            Some(shard) => shard.read(name),
            None => Err(unknown_tensor(self, name)),
        }
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl fmt::Debug for ShardedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedSource")
            .field("index_path", &self.index_path)
            .field("num_shards", &self.shards.len())
            .field("num_tensors", &self.entries.len())
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: TextMap,
}

fn read_weight_map(path: &Path) -> Result<BTreeMap<String, String>, StreamError> {
    let refused = |source| StreamError::Io {
        path: path.to_owned(),
        source,
    };
    let file = regular_file::open(path)?;
    let found_bytes = file.metadata().map_err(refused)?.len();
    if found_bytes > MAX_INDEX_BYTES {
        return Err(StreamError::IndexLength {
            path: path.to_owned(),
            found_bytes,
            limit_bytes: MAX_INDEX_BYTES,
        });
    }
    let mut json = Vec::new();
    // It may have grown since.
    file.take(MAX_INDEX_BYTES)
        .read_to_end(&mut json)
        .map_err(refused)?;
    let index: Index = serde_json::from_slice(&json).map_err(|source| StreamError::Index {
        path: path.to_owned(),
        source,
    })?;
    Ok(index.weight_map.0)
}

fn open_shards(
    index_path: &Path,
    weight_map: &BTreeMap<String, String>,
) -> Result<Shards, StreamError> {
    let names: BTreeSet<_> = weight_map.values().collect();
    if names.len() > MAX_SHARDS {
        return Err(StreamError::TooManyShards {
            path: index_path.to_owned(),
            found: names.len(),
            limit: MAX_SHARDS,
        });
    }
    // All of them, before one is read that may be large.
    let place = |name: &String| Ok((name.clone(), shard_path(index_path, name)?));
    let paths: Result<Vec<_>, StreamError> = names.into_iter().map(place).collect();
    let open = |(name, path): (String, PathBuf)| Ok((name, open_tensors(&path, map_file(&path)?)?));
    paths?.into_iter().map(open).collect()
}

fn shard_path(index_path: &Path, name: &str) -> Result<PathBuf, StreamError> {
    let (path, shard) = (index_path.to_owned(), shorten(name));
    if !is_plain_name(name) {
        return Err(StreamError::ShardName { path, shard });
    }
    let shard_path = index_path.with_file_name(name);
    match shard_path.try_exists() {
        Ok(false) => Err(StreamError::MissingShard { path, shard }),
        // What keeps it from being looked up keeps it from being opened.
        Ok(true) | Err(_) => Ok(shard_path),
    }
}

/// One component, not `..`, no separator of any system, and no longer than file names can be.
fn is_plain_name(shard: &str) -> bool {
    let mut components = Path::new(shard).components();
    matches!(
        (components.next(), components.next()),
        (Some(Component::Normal(_)), None)
    ) && !shard.contains(['/', '\\', ':', '\0'])
        && shard.len() <= MAX_NAME_BYTES
}

/// Every tensor of the index is in its shard.
fn check_map(
    path: &Path,
    weight_map: &BTreeMap<String, String>,
    shards: &Shards,
) -> Result<(), StreamError> {
    let missing = weight_map
        .iter()
        .find(|(name, shard)| !shards[*shard].entries().contains_key(*name));
    match missing {
        Some((tensor, shard)) => Err(StreamError::ShardMismatch {
            path: path.to_owned(),
            tensor: shorten(tensor),
            expected: format!("`{shard}`"),
            found: "that file does not have it".to_owned(),
        }),
        None => Ok(()),
    }
}

/// Every tensor of a shard is in the index, and placed there.
fn check_shards(
    path: &Path,
    weight_map: &BTreeMap<String, String>,
    shards: &Shards,
) -> Result<(), StreamError> {
    for (shard, source) in shards {
        for tensor in source.entries().keys() {
            let placed = weight_map.get(tensor);
            if placed != Some(shard) {
                return Err(StreamError::ShardMismatch {
                    path: path.to_owned(),
                    tensor: shorten(tensor),
                    expected: placed
                        .map_or_else(|| "no file".to_owned(), |file| format!("`{file}`")),
                    found: format!("`{shard}` has it"),
                });
            }
        }
    }
    Ok(())
}
