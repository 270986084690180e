//! A folder's `PyTorch` file is used only where no safetensors file is.

use std::fs;

use overglaze_stream::open;
use tempfile::TempDir;

use crate::{
    gguf_bytes::block_types,
    pickled::{dict, storage, tensor, zip},
    written::safetensors,
};

/// Each file has one tensor, named after the file.
fn folder_with(files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let weight = tensor(&storage("ByteStorage", "0", 1), 0, &[1], &[1]);
        let content = if name.ends_with(".safetensors") {
            safetensors(&[(name, &[1])])
        } else {
            zip(&dict(&[(name, weight)]), &[7])
        };
        fs::write(path, content).unwrap();
    }
    folder
}

#[test]
fn safetensors_come_first() {
    let cases: &[(&[&str], &str)] = &[
        (&["weights.ckpt", "notes.txt"], "weights.ckpt"),
        (&["pytorch_model.bin", "optimizer.pt"], "pytorch_model.bin"),
        (
            &["pytorch_model.bin", "diffusion_pytorch_model.bin"],
            "diffusion_pytorch_model.bin",
        ),
        (&["a.PTH", "any.safetensors"], "any.safetensors"),
        (
            &["pytorch_model.bin", "transformer/any.safetensors"],
            "transformer/any.safetensors",
        ),
        (
            &["transformer/diffusion_pytorch_model.bin"],
            "transformer/diffusion_pytorch_model.bin",
        ),
    ];
    for (files, expected) in cases {
        let folder = folder_with(files);
        let source = open(folder.path(), &block_types).unwrap();
        let names: Vec<_> = source.entries().keys().collect();
        assert_eq!(names, [expected], "{files:?}");
    }
}

#[test]
fn several_are_listed() {
    let folder = folder_with(&["b.pt", "a.bin"]);
    let error = open(folder.path(), &block_types).unwrap_err();
    let expected = format!(
        "the folder `{}` holds no safetensors file and several PyTorch files (a.bin, b.pt); name the one to \
         open",
        folder.path().display()
    );
    assert_eq!(error.to_string(), expected);
}
