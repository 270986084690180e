//! What an adapter is on disk: one safetensors file, or a PEFT folder of weights and configuration.
//!
//! A folder is an adapter when it holds `adapter_config.json` and `adapter_model.safetensors`: without the
//! configuration the scale of its patches would be a guess. A file called `adapter_model.safetensors` is
//! read with the configuration beside it. Every reader of adapters takes these rules from here.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::{AdapterConfig, PatchError};

/// The parts of an adapter on disk.
#[derive(Clone, Debug)]
pub struct AdapterFiles {
    /// The safetensors file.
    pub weights: PathBuf,
    /// The configuration beside it.
    pub config: Option<AdapterConfig>,
}

/// Finds the parts of the adapter at `path`, and reads its configuration.
///
/// A path that is no folder is taken for the weights, whether it is there or not.
///
/// # Errors
/// [`PatchError::NotAnAdapterFolder`], [`PatchError::Io`], or what is wrong with the configuration.
pub fn locate(path: &Path) -> Result<AdapterFiles, PatchError> {
    if !path.is_dir() {
        let beside = path.with_file_name(CONFIG);
        let is_weights = path.file_name().is_some_and(|name| name == WEIGHTS);
        let has_config = is_weights && is_there(&beside);
        let config = has_config.then(|| read_config(&beside)).transpose()?;
        return Ok(AdapterFiles {
            weights: path.into(),
            config,
        });
    }
    if let Some(missing) = missing_part(path) {
        check_is_file(&path.join(missing))?;
        return Err(PatchError::NotAnAdapterFolder {
            path: path.into(),
            missing,
        });
    }
    Ok(AdapterFiles {
        weights: path.join(WEIGHTS),
        config: Some(read_config(&path.join(CONFIG))?),
    })
}

/// Whether `path` is a folder that holds a PEFT adapter.
#[must_use]
pub fn is_peft_folder(path: &Path) -> bool {
    path.is_dir() && missing_part(path).is_none()
}

/// What a set read from `path` is called: the folder's whole name, or the file's without the last extension.
#[must_use]
pub fn set_name(path: &Path) -> String {
    let name = if path.is_dir() {
        path.file_name()
    } else {
        path.file_stem()
    };
    name.unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// The configuration that counts for the file `path`: `beside` it, else the one in its own `metadata`.
///
/// # Errors
/// As [`AdapterConfig::from_metadata`].
pub fn config_of<'a>(
    path: &Path,
    beside: Option<AdapterConfig>,
    metadata: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<Option<AdapterConfig>, PatchError> {
    match beside {
        Some(config) => Ok(Some(config)),
        None => AdapterConfig::from_metadata(path, metadata),
    }
}

/// The part that `folder` lacks to be a PEFT adapter: [`CONFIG`], else [`WEIGHTS`].
#[must_use]
pub fn missing_part(folder: &Path) -> Option<&'static str> {
    [CONFIG, WEIGHTS]
        .into_iter()
        .find(|part| !folder.join(part).is_file())
}

/// Whether there is an entry `path`, be it a link to nothing: then it is damaged and not absent.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Refuses an entry `path` that is no file, as an incomplete cache has them; that there is none is no error.
fn check_is_file(path: &Path) -> Result<(), PatchError> {
    let found = match path.metadata() {
        Ok(metadata) if metadata.is_file() => return Ok(()),
        Ok(_) => io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"),
        Err(_) if !is_there(path) => return Ok(()),
        Err(error) => error,
    };
    Err(PatchError::Io {
        path: path.into(),
        source: found,
    })
}

fn read_config(path: &Path) -> Result<AdapterConfig, PatchError> {
    check_is_file(path)?;
    let text = read_capped(path).map_err(|source| PatchError::Io {
        path: path.into(),
        source,
    })?;
    AdapterConfig::from_json(path, text)
}

/// The text of a file, up to just over what a configuration may have: more is refused when it is parsed.
fn read_capped(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let cap = AdapterConfig::MAX_BYTES as u64 + 1;
    File::open(path)?.take(cap).read_to_end(&mut text)?;
    Ok(text)
}

/// Name of the configuration in a PEFT folder.
pub const CONFIG: &str = "adapter_config.json";
/// Name of the weights in a PEFT folder.
pub const WEIGHTS: &str = "adapter_model.safetensors";
