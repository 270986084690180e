//! From a path to a source: a file, an index, or a folder in the layout of diffusers.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::StreamError;

use super::{
    Impostor, PickleSource, SafetensorsSource, ShardedSource, WeightSource, pickle, regular_file,
    sniff,
};

/// File names without extension that name a folder's weights, first match wins.
const STANDARD_STEMS: [&str; 2] = ["diffusion_pytorch_model", "model"];

/// Names of files listed in a message at most.
const MAX_LISTED: usize = 8;

/// Opens weights by path: a safetensors file, the `.index.json` of a sharded checkpoint, a file of `torch.save`
/// (told by its content), or a folder.
///
/// In a folder, the index or file of a standard name comes first, then those of a `transformer` folder in it,
/// then its only safetensors file. Where there is none, a `PyTorch` file of a standard name or the only one.
///
/// # Errors
/// Where nothing is there, nothing or several things could be meant, or the file cannot be used.
pub fn open(path: &Path) -> Result<Arc<dyn WeightSource>, StreamError> {
    if !path.try_exists().map_err(|source| io(path, source))? {
        return Err(StreamError::MissingPath {
            path: path.to_owned(),
        });
    }
    if path.is_dir() {
        return open_file(&weights_in(path)?);
    }
    open_file(path)
}

fn open_file(path: &Path) -> Result<Arc<dyn WeightSource>, StreamError> {
    if path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        Ok(Arc::new(ShardedSource::open(path)?))
    } else if is_pickle(path)? {
        Ok(Arc::new(PickleSource::open(path)?))
    } else {
        Ok(Arc::new(SafetensorsSource::open(path)?))
    }
}

/// By its content; but a pickle that calls itself safetensors is taken at its word, and refused as such.
fn is_pickle(path: &Path) -> Result<bool, StreamError> {
    let file = regular_file::open(path)?;
    let mut first = Vec::new();
    file.take(64)
        .read_to_end(&mut first)
        .map_err(|source| io(path, source))?;
    let is_one = matches!(sniff(&first), Some(Impostor::Zip | Impostor::Pickle));
    Ok(is_one && !has_extension(path, "safetensors"))
}

fn weights_in(folder: &Path) -> Result<PathBuf, StreamError> {
    if let Some(path) = standard_file(folder) {
        return Ok(path);
    }
    let transformer = folder.join("transformer");
    if let Some(path) = standard_file(&transformer) {
        return Ok(path);
    }
    let mut found = safetensors_files(folder)?;
    if found.is_empty() && transformer.is_dir() {
        found = safetensors_files(&transformer)?;
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

fn safetensors_files(folder: &Path) -> Result<Vec<PathBuf>, StreamError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|source| io(folder, source))? {
        let path = entry.map_err(|source| io(folder, source))?.path();
        if has_extension(&path, "safetensors") && path.is_file() {
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
