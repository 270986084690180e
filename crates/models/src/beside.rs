//! Finding the documents of a diffusers pipeline beside a model's weights.

use std::{
    fs::File,
    io::{Error, ErrorKind, Read as _},
    path::{Path, PathBuf},
};

use crate::{FluxConfigFile, ModelError, SchedulerConfig};

/// The `config.json` that belongs to the model at `model`, a file or a folder; `None` when there is
/// none, or the one there is of another network.
///
/// # Errors
/// [`ModelError::Io`] or [`ModelError::Json`] when it is there and cannot be read.
pub fn config_beside(model: &Path) -> Result<Option<FluxConfigFile>, ModelError> {
    let folder = folder_of(model);
    let candidates = [
        folder.join("config.json"),
        folder.join("transformer/config.json"),
    ];
    for path in candidates.into_iter().filter(|path| path.is_file()) {
        match FluxConfigFile::from_json(&read_capped(&path)?) {
            Err(ModelError::NotThisNetwork { .. }) => {}
            file => return file.map(Some),
        }
    }
    Ok(None)
}

/// The `scheduler_config.json` of the pipeline that the model at `model` belongs to; `None` when
/// there is none.
///
/// # Errors
/// [`ModelError::Io`] or [`ModelError::Json`] when it is there and cannot be read.
pub fn scheduler_beside(model: &Path) -> Result<Option<SchedulerConfig>, ModelError> {
    let folder = folder_of(model);
    let candidates = [Some(folder.as_path()), folder.parent()];
    let path = candidates
        .into_iter()
        .flatten()
        .map(|pipeline| pipeline.join("scheduler/scheduler_config.json"))
        .find(|path| path.is_file());
    path.map(|path| SchedulerConfig::from_json(&read_capped(&path)?))
        .transpose()
}

/// The folder the model is, or is in, as an absolute path so that it has a parent.
fn folder_of(model: &Path) -> PathBuf {
    let absolute = model.canonicalize().unwrap_or_else(|_| model.to_owned());
    if absolute.is_dir() {
        return absolute;
    }
    absolute.parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// A document of at most 1 MiB.
fn read_capped(path: &Path) -> Result<Vec<u8>, ModelError> {
    let io = |source| ModelError::Io {
        path: path.to_owned(),
        source,
    };
    let mut document = Vec::new();
    File::open(path)
        .map_err(io)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut document)
        .map_err(io)?;
    if document.len() as u64 > MAX_BYTES {
        let why = "it is larger than 1 MiB, the most such a document may have";
        return Err(io(Error::new(ErrorKind::FileTooLarge, why)));
    }
    Ok(document)
}

const MAX_BYTES: u64 = 1 << 20;
