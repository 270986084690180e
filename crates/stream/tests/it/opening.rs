//! Paths: files, folders in the layouts found in the wild, and what is said where nothing fits.

use std::{fs, path::Path};

use overglaze_stream::{WeightSource, open, source::SafetensorsSource};
use tempfile::TempDir;

use crate::{gguf_bytes::block_types, written::safetensors};

fn folder_with(files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let content = if name.ends_with(".json") {
            br#"{"weight_map":{"shard.safetensors":"shard.safetensors"}}"#.to_vec()
        } else {
            safetensors(&[(
                Path::new(name).file_name().unwrap().to_str().unwrap(),
                &[1, 2],
            )])
        };
        fs::write(path, content).unwrap();
    }
    folder
}

#[test]
fn a_folder_resolves_to_its_weights() {
    let cases: &[(&[&str], &str)] = &[
        (&["any.safetensors", "notes.txt"], "any.safetensors"),
        (
            &["model.safetensors", "other.safetensors"],
            "model.safetensors",
        ),
        (
            &["diffusion_pytorch_model.safetensors", "model.safetensors"],
            "diffusion_pytorch_model.safetensors",
        ),
        (
            &[
                "model.safetensors.index.json",
                "model.safetensors",
                "shard.safetensors",
            ],
            "shard.safetensors",
        ),
        (
            &[
                "ae.safetensors",
                "flux1.safetensors",
                "transformer/diffusion_pytorch_model.safetensors",
            ],
            "diffusion_pytorch_model.safetensors",
        ),
        (&["transformer/any.safetensors"], "any.safetensors"),
    ];
    for (files, expected) in cases {
        let folder = folder_with(files);
        let source = open(folder.path(), &block_types).unwrap();
        let names: Vec<_> = source.entries().keys().collect();
        assert_eq!(names, [expected], "{files:?}");
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let cases: &[(&[&str], &str)] = &[
        (&["notes.txt"], "holds no weights"),
        (
            &["a.safetensors", "b.safetensors"],
            "several files of weights (a.safetensors, b.safetensors)",
        ),
    ];
    for (files, words) in cases {
        let folder = folder_with(files);
        let error = open(folder.path(), &block_types).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let error = open(Path::new("no/such/file.safetensors"), &block_types).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`no/such/file.safetensors` does not exist; check the path"
    );
}

#[cfg(unix)]
#[test]
fn a_broken_link_is_an_io_error_or_missing() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("loop.safetensors");
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let error = open(&link, &block_types).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn a_mapped_tensor_is_a_view_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    fs::write(&path, safetensors(&[("a", &[5, 6, 7]), ("b", &[8])])).unwrap();
    let source = SafetensorsSource::open(&path).unwrap();
    let (first, second) = (source.read("a").unwrap(), source.read("a").unwrap());
    assert_eq!(&first[..], [5, 6, 7]);
    assert_eq!(first.as_ptr(), second.as_ptr());
    assert_eq!(source.entries()["b"].file.as_deref(), Some(path.as_path()));
    // A view keeps the mapping alive.
    drop(source);
    assert_eq!(&second[..], [5, 6, 7]);
}
