//! The adapters of a folder: `.safetensors` files and PEFT folders directly inside it, in the order people count.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use overglaze_core::adapter_file;
use overglaze_models::did_you_mean;
use serde::Serialize;

use crate::{CliError, output_file};

/// What a folder (or a single file) offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Adapters in natural order, `epoch-2` before `epoch-10`, ignoring case.
    pub adapters: Vec<PathBuf>,
    /// Everything else, with the reason.
    pub skipped: Vec<Skipped>,
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Name of the file, folder or adapter.
    pub name: String,
    /// Why it was left out.
    pub reason: String,
}

/// Lists the adapters at `path`: a folder of them, a single file, or a single PEFT folder.
///
/// # Errors
/// [`CliError::MissingPath`], [`CliError::Read`], or [`CliError::NoAdapters`] for a folder without any.
pub fn list(path: &Path) -> Result<Listing, CliError> {
    if !path.exists() {
        return Err(missing(path));
    }
    if path.is_file() || adapter_file::is_peft_folder(path) {
        return Ok(Listing {
            adapters: vec![path.to_owned()],
            skipped: Vec::new(),
        });
    }
    if !path.is_dir() {
        return Err(CliError::NotAFile {
            path: path.to_owned(),
        });
    }
    let mut listing = Listing::default();
    for entry in entries(path)? {
        match refusal(&entry) {
            None => listing.adapters.push(entry),
            Some(reason) => {
                listing.skipped.push(Skipped {
                    name: name(&entry),
                    reason: reason.into(),
                });
            }
        }
    }
    if listing.adapters.is_empty() {
        return Err(no_adapters(path, &listing.skipped));
    }
    Ok(listing)
}

/// Refuses a path where no single adapter lies: nothing at all, or a folder of adapters.
///
/// # Errors
/// [`CliError::MissingPath`], [`CliError::FolderOfLoras`], or as [`list`].
pub fn check_one(path: &Path) -> Result<(), CliError> {
    if !path.exists() {
        return Err(missing(path));
    }
    if !path.is_dir() || adapter_file::is_peft_folder(path) {
        return Ok(());
    }
    Err(CliError::FolderOfLoras {
        path: path.to_owned(),
        count: list(path)?.adapters.len(),
    })
}

/// Natural order ignoring case; names that differ in case alone keep a fixed order.
#[must_use]
pub fn natural_order(a: &str, b: &str) -> std::cmp::Ordering {
    natord::compare_ignore_case(a, b).then_with(|| a.cmp(b))
}

/// The error for a path where nothing lies, with the nearest name beside it.
#[must_use]
pub fn missing(path: &Path) -> CliError {
    if let Ok(target) = fs::read_link(path) {
        let is_gone = fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let why = if is_gone {
            "does not exist"
        } else {
            "leads nowhere"
        };
        let path = path.to_owned();
        return CliError::BrokenLink { path, target, why };
    }
    let wanted = name(path);
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let siblings = entries(parent.unwrap_or(Path::new("."))).unwrap_or_default();
    let siblings: Vec<String> = siblings.iter().map(|sibling| name(sibling)).collect();
    let hint = did_you_mean(&wanted, siblings.iter().map(String::as_str));
    CliError::MissingPath {
        path: path.to_owned(),
        hint,
    }
}

/// The last part of a path.
#[must_use]
pub fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Everything directly inside a folder but unfinished outputs, in natural order.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = |source| CliError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut paths = fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    paths.retain(|path| !output_file::is_unfinished(&name(path)));
    paths.sort_by(|a, b| natural_order(&name(a), &name(b)));
    Ok(paths)
}

/// Why an entry is no adapter.
fn refusal(path: &Path) -> Option<&'static str> {
    if path.is_dir() {
        return (!adapter_file::is_peft_folder(path))
            .then_some("a folder without adapter_config.json and adapter_model.safetensors");
    }
    let extension = path
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    match extension.as_str() {
        "safetensors" if name(path).starts_with('.') => Some("a hidden file"),
        "safetensors" => None,
        "pt" | "pth" | "ckpt" | "bin" => {
            Some("a pickle, which is not read: convert it to safetensors")
        }
        "gguf" => Some("GGUF adapters are not read: convert it to safetensors"),
        _ => Some("not a .safetensors file"),
    }
}

fn no_adapters(path: &Path, skipped: &[Skipped]) -> CliError {
    let names: Vec<_> = skipped
        .iter()
        .take(MAX_LISTED)
        .map(|entry| entry.name.as_str())
        .collect();
    let skipped = match skipped.len() {
        0 => ", but it is empty".into(),
        count => format!(", found only {} ({count} in all)", names.join(", ")),
    };
    CliError::NoAdapters {
        path: path.to_owned(),
        skipped,
    }
}

/// Names listed in a message at most.
const MAX_LISTED: usize = 5;
