//! Opening a path only where a regular file lies.
//!
//! Opening a pipe waits for whoever writes to it, and a device may never end: both are refused unopened.

use std::{
    fs::{self, File, FileType},
    path::Path,
};

use crate::StreamError;

/// Opens a regular file; follows links.
pub(super) fn open(path: &Path) -> Result<File, StreamError> {
    let refused = |source| StreamError::Io {
        path: path.to_owned(),
        source,
    };
    let file_type = fs::metadata(path).map_err(refused)?.file_type();
    if !file_type.is_file() {
        return Err(StreamError::NotAFile {
            path: path.to_owned(),
            found: kind(file_type),
        });
    }
    File::open(path).map_err(refused)
}

/// With its article.
fn kind(file_type: FileType) -> &'static str {
    if file_type.is_dir() {
        "a folder"
    } else {
        special_kind(file_type)
    }
}

#[cfg(unix)]
fn special_kind(file_type: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;

    if file_type.is_fifo() {
        "a pipe"
    } else if file_type.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn special_kind(_file_type: FileType) -> &'static str {
    "a device"
}
