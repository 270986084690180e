//! Mapping a file into memory: the only unsafe code of the sources.

use std::{fs::File, path::Path};

use bytes::Bytes;
use memmap2::Mmap;

use crate::StreamError;

use super::regular_file;

/// A regular file as bytes that are read from it when they are touched.
pub(super) fn map_file(path: &Path) -> Result<Bytes, StreamError> {
    let refused = |source| StreamError::Io {
        path: path.to_owned(),
        source,
    };
    let file = regular_file::open(path)?;
    if file.metadata().map_err(refused)?.len() == 0 {
        // Not every system can map nothing; the header parser says what is wrong.
        return Ok(Bytes::new());
    }
    map(&file).map(Bytes::from_owner).map_err(refused)
}

#[expect(unsafe_code, reason = "mapping a file has no safe form")]
fn map(file: &File) -> Result<Mmap, std::io::Error> {
    // SAFETY: the map is read-only and private to this process, and outlives every view through the
    // `Bytes` that owns it. Another process that cuts the file is outside what can be checked; the
    // sources' documentation forbids it, as every mapping loader does.
    unsafe { Mmap::map(file) }
}
