//! The formats of bitsandbytes, against broken files.

mod refused;

use std::path::{Path, PathBuf};

use crate::tensor_file::MemoryFile;

fn case(name: &str) -> MemoryFile {
    MemoryFile::open(&folder().join(format!("{name}.safetensors")))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/quant_bnb")
}
