//! The `PyTorch` file, or the index of several, of a folder that holds no safetensors file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::StreamError;

use super::PickleError;

/// First match wins.
const STANDARD_NAMES: [&str; 4] = [
    "diffusion_pytorch_model.bin.index.json",
    "diffusion_pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
];

const EXTENSIONS: [&str; 4] = ["bin", "pt", "pth", "ckpt"];

/// Names of files listed in a message at most.
const MAX_LISTED: usize = 8;

/// The index or file of a standard name, or the only one with an extension of `PyTorch`; `None` where there is none.
pub(in super::super) fn file_in(folder: &Path) -> Result<Option<PathBuf>, StreamError> {
    let standard = STANDARD_NAMES.map(|name| folder.join(name));
    if let Some(path) = standard.into_iter().find(|path| path.is_file()) {
        return Ok(Some(path));
    }
    let mut found = pickles(folder).map_err(|source| StreamError::Io {
        path: folder.to_owned(),
        source,
    })?;
    found.sort();
    match found.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        several => Err(StreamError::from(PickleError::SeveralFiles {
            path: folder.to_owned(),
            found: several
                .iter()
                .take(MAX_LISTED)
                .filter_map(|path| file_name(path))
                .collect(),
        })),
    }
}

fn pickles(folder: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_pickle = path.extension().is_some_and(|extension| {
            EXTENSIONS
                .iter()
                .any(|pickle| extension.eq_ignore_ascii_case(pickle))
        });
        if is_pickle && path.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}
