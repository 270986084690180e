//! The adapters of a folder: `.safetensors` files and PEFT folders directly inside it, in the order people count.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use overglaze_core::adapter_file;
use overglaze_models::did_you_mean;
use overglaze_patches::files;
use serde::Serialize;

use crate::{CliError, key_list, output_file, shown};

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

impl Skipped {
    /// As a line of a report.
    pub(crate) fn line(&self) -> String {
        let (name, reason) = (shown::name(&self.name), shown::message(&self.reason));
        format!("skipped: {name}: {reason}")
    }
}

/// Lists the adapters at `path`: a folder of them, a single file, or a single PEFT folder.
///
/// # Errors
/// [`CliError::MissingPath`], [`CliError::Read`], [`CliError::NotAnAdapter`] for a file of another kind, or
/// [`CliError::NoAdapters`] for a folder without any.
pub fn list(path: &Path) -> Result<Listing, CliError> {
    if !path.exists() {
        return Err(missing(path));
    }
    if path.is_file() {
        check_file(path)?;
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

/// Refuses a path where no single adapter lies: nothing at all, a file of another kind, or a folder of adapters.
///
/// # Errors
/// [`CliError::MissingPath`], [`CliError::KeyList`], [`CliError::NotAnAdapter`], [`CliError::FolderOfLoras`], or as [`list`].
pub fn check_one(path: &Path) -> Result<(), CliError> {
    if !path.exists() {
        return Err(missing(path));
    }
    if adapter_file::is_peft_folder(path) {
        return Ok(());
    }
    if key_list::is_list(path) {
        return Err(CliError::KeyList {
            path: path.to_owned(),
        });
    }
    if !path.is_dir() {
        return check_file(path);
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
        return folder_refusal(path);
    }
    match extension(path).as_str() {
        "safetensors" if name(path).starts_with('.') => Some("a hidden file"),
        "safetensors" => None,
        other => format_refusal(other).or(Some("not a .safetensors file")),
    }
}

/// Refuses a file by its name, where that tells a format which is not read.
fn check_file(path: &Path) -> Result<(), CliError> {
    match format_refusal(&extension(path)) {
        None => Ok(()),
        Some(why) => Err(CliError::NotAnAdapter {
            path: path.to_owned(),
            why,
        }),
    }
}

fn format_refusal(extension: &str) -> Option<&'static str> {
    match extension {
        "pt" | "pth" | "ckpt" | "bin" => Some(PICKLE),
        "gguf" => {
            Some("a GGUF file, and adapters are not read from those: convert it to safetensors")
        }
        _ => None,
    }
}

/// What a folder lacks to be an adapter.
fn folder_refusal(folder: &Path) -> Option<&'static str> {
    match (
        files::missing_part(folder)?,
        folder.join(PICKLED_WEIGHTS).is_file(),
    ) {
        (files::WEIGHTS, true) => {
            Some("its adapter_model.bin is a pickle, which is not read: convert it to safetensors")
        }
        (files::WEIGHTS, false) => Some("a folder without adapter_model.safetensors"),
        _ => Some("a folder without adapter_config.json"),
    }
}

fn extension(path: &Path) -> String {
    let extension = path.extension().unwrap_or_default();
    extension.to_string_lossy().to_lowercase()
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

const PICKLE: &str = "a pickle, which is not read: convert it to safetensors";

/// The weights of a PEFT folder before safetensors.
const PICKLED_WEIGHTS: &str = "adapter_model.bin";

/// Names listed in a message at most.
const MAX_LISTED: usize = 5;
