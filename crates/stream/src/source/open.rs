//! From a path to a source: a file, an index, or a folder in the layout of diffusers.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use crate::StreamError;

use super::{
    Impostor, PickleSource, SafetensorsSource, ShardedSource, WeightSource,
    gguf::{BlockTypes, GgufSource, header::MAGIC, split::numbers_in},
    mapping::map_file,
    pickle, sniff,
};

const SAFETENSORS: &str = "safetensors";
const GGUF: &str = "gguf";

/// File names without extension that name a folder's weights, first match wins.
const STANDARD_STEMS: [&str; 2] = ["diffusion_pytorch_model", "model"];

/// Names of files listed in a message at most.
const MAX_LISTED: usize = 8;

/// Opens weights by path: a safetensors or GGUF file, the `.index.json` of a sharded checkpoint, a file of `torch.save`
/// (told by its content), or a folder.
///
/// In a folder, the index or file of a standard name comes first, then those of a `transformer` folder in it,
/// then its only safetensors file, then its only GGUF file. Where there is none, a `PyTorch` index or file of a standard
/// name, or the only file. `block_types` says what the types of a GGUF file are.
///
/// # Errors
/// Where nothing is there, nothing or several things could be meant, or the file cannot be used.
pub fn open(
    path: &Path,
    block_types: &BlockTypes<'_>,
) -> Result<Arc<dyn WeightSource>, StreamError> {
    if !path.try_exists().map_err(|source| io(path, source))? {
        return Err(StreamError::MissingPath {
            path: path.to_owned(),
        });
    }
    if path.is_dir() {
        return open_file(&weights_in(path)?, block_types);
    }
    open_file(path, block_types)
}

fn open_file(
    path: &Path,
    block_types: &BlockTypes<'_>,
) -> Result<Arc<dyn WeightSource>, StreamError> {
    if has_extension(path, "json") {
        return Ok(Arc::new(ShardedSource::open(path)?));
    }
    let map = map_file(path)?;
    let is_gguf = map.starts_with(&MAGIC) && !has_extension(path, SAFETENSORS);
    if is_gguf || has_extension(path, GGUF) {
        Ok(Arc::new(GgufSource::from_map(path, map, block_types)?))
    } else {
        open_tensors(path, map)
    }
}

/// A file that is mapped already and no GGUF file.
pub(super) fn open_tensors(path: &Path, map: Bytes) -> Result<Arc<dyn WeightSource>, StreamError> {
    if is_pickle(path, &map) {
        Ok(Arc::new(PickleSource::open(path)?))
    } else {
        // A GGUF file that is called a safetensors file is told to be one, as any other such file is.
        Ok(Arc::new(SafetensorsSource::from_map(path, map)?))
    }
}

/// By its content; but a pickle that calls itself safetensors is taken at its word, and refused as such.
fn is_pickle(path: &Path, map: &[u8]) -> bool {
    let found = sniff(&map[..map.len().min(64)]);
    matches!(found, Some(Impostor::Zip | Impostor::Pickle)) && !has_extension(path, SAFETENSORS)
}

fn weights_in(folder: &Path) -> Result<PathBuf, StreamError> {
    if let Some(path) = standard_file(folder) {
        return Ok(path);
    }
    let transformer = folder.join("transformer");
    if let Some(path) = standard_file(&transformer) {
        return Ok(path);
    }
    let mut found = Vec::new();
    for extension in [SAFETENSORS, GGUF] {
        for place in [folder, &transformer] {
            if found.is_empty() && place.is_dir() {
                found = weight_files(place, extension)?;
            }
        }
    }
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => pickle_in(folder, &transformer),
        several => Err(StreamError::SeveralFiles {
            path: folder.to_owned(),
            found: several
                .iter()
                .take(MAX_LISTED)
                .map(|path| file_name(path))
                .collect(),
        }),
    }
}

fn pickle_in(folder: &Path, transformer: &Path) -> Result<PathBuf, StreamError> {
    let mut found = pickle::folder::file_in(folder)?;
    if found.is_none() && transformer.is_dir() {
        found = pickle::folder::file_in(transformer)?;
    }
    found.ok_or_else(|| StreamError::NoWeights {
        path: folder.to_owned(),
    })
}

fn standard_file(folder: &Path) -> Option<PathBuf> {
    STANDARD_STEMS
        .iter()
        .flat_map(|stem| {
            [".safetensors.index.json", ".safetensors"]
                .map(|end| folder.join(format!("{stem}{end}")))
        })
        .find(|path| path.is_file())
}

/// Files of one kind; of a split one its first part.
fn weight_files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, StreamError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|source| io(folder, source))? {
        let path = entry.map_err(|source| io(folder, source))?.path();
        let is_later_part = || numbers_in(&file_name(&path)).is_some_and(|(number, _)| number > 1);
        if has_extension(&path, extension) && path.is_file() && !is_later_part() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn has_extension(path: &Path, expected: &str) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case(expected))
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

fn io(path: &Path, source: std::io::Error) -> StreamError {
    StreamError::Io {
        path: path.to_owned(),
        source,
    }
}
