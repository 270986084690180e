//! The formats of bitsandbytes, against what bitsandbytes computed and against broken files.

mod int8;
mod refused;

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::tensor_file::MemoryFile;

/// The golden cases, by name.
fn cases() -> Vec<(String, MemoryFile)> {
    let paths = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = paths
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            (name.to_owned(), MemoryFile::open(&path))
        })
        .collect();
    cases.sort_by(|(a, _), (b, _)| a.cmp(b));
    cases
}

fn case(name: &str) -> MemoryFile {
    MemoryFile::open(&folder().join(format!("{name}.safetensors")))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/quant_bnb")
}
