//! Checkpoints of several `PyTorch` files: read as one source, and refused as those of safetensors files are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use overglaze_stream::{StreamError, open};
use tempfile::TempDir;

use crate::{
    gguf_bytes::block_types,
    pickled::{dict, global, storage, tensor, zip},
    written::{chain, safetensors},
};

const INDEX: &str = "pytorch_model.bin.index.json";
const GOOD: &str = r#""a":"one.bin","b":"one.bin","c":"two.bin""#;

/// A file of `torch.save`, each of whose tensors is one byte.
fn pickle(names: &[&str], byte: u8) -> Vec<u8> {
    let weight = || tensor(&storage("ByteStorage", "0", 1), 0, &[1], &[1]);
    let weights: Vec<_> = names.iter().map(|name| (*name, weight())).collect();
    zip(&dict(&weights), &[byte])
}

fn checkpoint(index_name: &str, weight_map: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(index_name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let write = |name: &str, content: &[u8]| fs::write(path.with_file_name(name), content).unwrap();
    write("one.bin", &pickle(&["a", "b"], 1));
    write("two.bin", &pickle(&["c"], 2));
    write("html.bin", b"<!DOCTYPE html><html></html>");
    let index = format!(r#"{{"metadata":{{"total_size":3}},"weight_map":{{{weight_map}}}}}"#);
    fs::write(&path, index).unwrap();
    (folder, path)
}

fn refused(path: &Path) -> String {
    chain(&open(path, &block_types).unwrap_err())
}

#[test]
fn shards_read_as_one_source() {
    let (folder, path) = checkpoint(INDEX, GOOD);
    for path in [path.as_path(), folder.path()] {
        let source = open(path, &block_types).unwrap();
        assert_eq!(source.entries().keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(&source.read("b").unwrap()[..], [1]);
        assert_eq!(&source.read("c").unwrap()[..], [2]);
        assert!(source.label().ends_with(INDEX));
        let error = source.read("z").unwrap_err();
        assert!(matches!(error, StreamError::UnknownTensor { .. }));
    }
}

#[test]
fn every_shard_says_that_it_cannot_be_streamed() {
    let (folder, path) = checkpoint(INDEX, GOOD);
    let note = |name: &str| {
        format!(
            "`{}` is a PyTorch file: it was loaded whole into memory and cannot be streamed; convert it to \
             safetensors",
            folder.path().join(name).display()
        )
    };
    let source = open(&path, &block_types).unwrap();
    assert_eq!(source.notes(), [note("one.bin"), note("two.bin")]);
}

#[test]
fn a_folders_index_comes_before_its_files() {
    for name in [
        INDEX,
        "diffusion_pytorch_model.bin.index.json",
        "transformer/diffusion_pytorch_model.bin.index.json",
    ] {
        let (folder, path) = checkpoint(name, GOOD);
        fs::write(path.with_file_name("other.bin"), pickle(&["d"], 4)).unwrap();
        fs::write(path.with_file_name("pytorch_model.bin"), pickle(&["d"], 4)).unwrap();
        let source = open(folder.path(), &block_types).unwrap();
        assert_eq!(source.entries().len(), 3, "{name}");
        // Safetensors files come first.
        let file = path.with_file_name("x.safetensors");
        fs::write(file, safetensors(&[("s", &[1])])).unwrap();
        let source = open(folder.path(), &block_types).unwrap();
        assert_eq!(source.entries().keys().collect::<Vec<_>>(), ["s"], "{name}");
    }
}

#[test]
fn disagreement_is_refused() {
    let with = |pair: &str| format!("{GOOD},{pair}");
    for (weight_map, words) in [
        (with(r#""d":"two.bin""#), "that file does not have it"),
        (
            r#""a":"one.bin""#.to_owned(),
            "places the tensor `b` in no file, but `one.bin` has it",
        ),
        (
            r#""a":"one.bin","b":"two.bin","c":"two.bin""#.to_owned(),
            "places the tensor `b` in `two.bin`, but that file does not have it",
        ),
        (with(r#""d":"three.bin""#), "names the shard `three.bin`"),
        (with(r#""d":"../one.bin""#), "not a plain file name"),
        (with(r#""d":"/etc/passwd""#), "not a plain file name"),
        (with(r#""d":"..""#), "not a plain file name"),
        (with(r#""d":"html.bin""#), "is an HTML page"),
        (
            with(r#""d":"pickle.safetensors""#),
            "is a zip/pickle archive as PyTorch writes it",
        ),
    ] {
        let (_folder, path) = checkpoint(INDEX, &weight_map);
        let file = path.with_file_name("pickle.safetensors");
        fs::write(file, pickle(&["d"], 3)).unwrap();
        let error = refused(&path);
        assert!(error.contains(words), "{weight_map}: {error}");
    }
}

#[test]
fn a_shard_that_would_run_code_is_refused() {
    let (_folder, path) = checkpoint(INDEX, GOOD);
    let system = global("posix", "system");
    fs::write(path.with_file_name("two.bin"), zip(&system, &[2])).unwrap();
    let error = refused(&path);
    assert!(
        error.contains("two.bin") && error.contains("posix"),
        "{error}"
    );
}
