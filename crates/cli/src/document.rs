//! Reading a document that a flag names: a regular file of a sane size.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
};

use crate::{CliError, loras};

/// A list of a model's keys at most; FLUX.1's has 100 kB.
pub(crate) const MAX_KEYS_BYTES: u64 = 100_000_000;

/// A configuration or a list of prompts at most.
pub(crate) const MAX_TEXT_BYTES: u64 = 1 << 20;

/// The contents of the file at `path`, which is not opened unless it is a regular one.
pub(crate) fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, CliError> {
    let failed = |source| CliError::Read {
        path: path.to_owned(),
        source,
    };
    if !path.exists() {
        return Err(loras::missing(path));
    }
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(CliError::NotAFile {
            path: path.to_owned(),
        });
    }
    let mut contents = Vec::new();
    File::open(path)
        .and_then(|file| file.take(max_bytes + 1).read_to_end(&mut contents))
        .map_err(failed)?;
    if contents.len() as u64 > max_bytes {
        return Err(CliError::FileTooLarge {
            path: path.to_owned(),
            limit: max_bytes,
        });
    }
    Ok(contents)
}
