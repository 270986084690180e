//! Sharded checkpoints: read as one source, and refused where index and shards disagree.

use std::{
    fs::{self, File},
    path::PathBuf,
};

use overglaze_stream::{StreamError, open};
use tempfile::TempDir;

use crate::{
    gguf_bytes::block_types,
    written::{chain, safetensors},
};

fn checkpoint(index: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
    write(
        "one.safetensors",
        &safetensors(&[("a", &[1, 2]), ("b", &[3])]),
    );
    write("two.safetensors", &safetensors(&[("c", &[4, 5, 6])]));
    write("model.safetensors.index.json", index.as_bytes());
    let path = folder.path().join("model.safetensors.index.json");
    (folder, path)
}

#[test]
fn shards_read_as_one_source() {
    let (folder, path) = checkpoint(
        r#"{"metadata":{"total_size":6},
            "weight_map":{"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"}}"#,
    );
    let source = open(&path, &block_types).unwrap();
    assert_eq!(source.entries().keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(&source.read("a").unwrap()[..], [1, 2]);
    assert_eq!(&source.read("c").unwrap()[..], [4, 5, 6]);
    let mut buffer = [0; 3];
    source.read_into("c", &mut buffer).unwrap();
    assert_eq!(buffer, [4, 5, 6]);
    let file = folder.path().join("two.safetensors");
    assert_eq!(source.entries()["c"].file, Some(file));
    assert_eq!(source.metadata()["format"], "pt");
    let error = source.read("z").unwrap_err();
    assert!(matches!(error, StreamError::UnknownTensor { .. }));
}

#[test]
fn disagreement_is_refused() {
    let map = |pairs: &str| format!(r#"{{"weight_map":{{{pairs}}}}}"#);
    let good = r#""a":"one.safetensors","b":"one.safetensors","c":"two.safetensors""#;
    let cases = [
        (
            map(&format!(r#"{good},"d":"two.safetensors""#)),
            "that file does not have it",
        ),
        (
            map(r#""a":"one.safetensors""#),
            "places the tensor `b` in no file",
        ),
        (
            map(&format!(r#"{good},"d":"three.safetensors""#)),
            "names the shard `three.safetensors`",
        ),
        (map(r#""a":"../one.safetensors""#), "not a plain file name"),
        (map(r#""a":"/etc/passwd""#), "not a plain file name"),
        (map(r#""a":"x\\one.safetensors""#), "not a plain file name"),
        (map(r#""a":"..""#), "not a plain file name"),
        (map(r#""a":"""#), "not a plain file name"),
        (map(r#""a":".""#), "not a plain file name"),
        (map(r#""a":"./one.safetensors""#), "not a plain file name"),
        (
            map(r#""a":"x/../one.safetensors""#),
            "not a plain file name",
        ),
        (map(r#""a":"C:one.safetensors""#), "not a plain file name"),
        (
            map(r#""a":"one.safetensors\u0000""#),
            "not a plain file name",
        ),
        (
            map(&format!(r#""a":"{}""#, "x".repeat(256))),
            "not a plain file name",
        ),
        (
            map(&format!(r#"{good},"c":"one.safetensors""#)),
            "the name `c` stands twice",
        ),
        (
            r#"{"weight_map":{},"weight_map":{}}"#.to_owned(),
            "duplicate field `weight_map`",
        ),
        (map(r#""a":7"#), "is not a checkpoint index"),
        ("[]".to_owned(), "is not a checkpoint index"),
    ];
    for (index, words) in cases {
        let (_folder, path) = checkpoint(&index);
        let error = chain(&open(&path, &block_types).unwrap_err());
        assert!(error.contains(words), "{index}: {error}");
    }
}

#[test]
fn an_index_of_absurd_size_is_refused_unread() {
    let (_folder, path) = checkpoint("{}");
    let index = File::options().write(true).open(&path).unwrap();
    // A file with a hole: it takes no room on the disk.
    index.set_len(100_000_001).unwrap();
    let error = open(&path, &block_types).unwrap_err();
    let expected = format!(
        "the checkpoint index `{}` has 100000001 bytes, expected at most 100000000; it is damaged or no \
         index, so fetch it again",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn more_shards_than_any_checkpoint_has_are_refused_unopened() {
    let pairs: Vec<_> = (0..4097)
        .map(|index| format!(r#""t{index}":"{index}.safetensors""#))
        .collect();
    let (_folder, path) = checkpoint(&format!(r#"{{"weight_map":{{{}}}}}"#, pairs.join(",")));
    let error = open(&path, &block_types).unwrap_err();
    let expected = format!(
        "the checkpoint index `{}` names 4097 shards, expected at most 4096; it is damaged, so fetch it \
         again",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
}
