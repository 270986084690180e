//! What is no regular file is refused unopened: a pipe would wait for its writer, a device never end.

#![cfg(unix)]

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    process::Command,
};

use overglaze_stream::{
    StreamError, open,
    source::{SafetensorsSource, ShardedSource},
};

use crate::gguf_bytes::block_types;

fn make_pipe(path: &Path) {
    let status = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(status.success());
}

fn check(error: &StreamError, path: &Path, found: &str) {
    let expected = format!(
        "`{}` is {found}, not a regular file, so it is not opened; give the path of the weights' file",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn pipes_sockets_and_devices_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    make_pipe(&at("pipe.safetensors"));
    make_pipe(&at("pipe.json"));
    let _socket = UnixListener::bind(at("socket.safetensors")).unwrap();
    symlink("/dev/zero", at("link.safetensors")).unwrap();
    let cases = [
        (at("pipe.safetensors"), "a pipe"),
        (at("pipe.json"), "a pipe"),
        (at("socket.safetensors"), "a socket"),
        (at("link.safetensors"), "a device"),
        ("/dev/null".into(), "a device"),
        ("/dev/zero".into(), "a device"),
    ];
    for (path, found) in cases {
        check(&open(&path, &block_types).unwrap_err(), &path, found);
    }
}

#[test]
fn a_folder_given_as_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    check(
        &SafetensorsSource::open(path).unwrap_err(),
        path,
        "a folder",
    );
    check(&ShardedSource::open(path).unwrap_err(), path, "a folder");
}

#[test]
fn a_folder_of_pipes_holds_no_weights() {
    let folder = tempfile::tempdir().unwrap();
    make_pipe(&folder.path().join("model.safetensors"));
    let error = open(folder.path(), &block_types).unwrap_err();
    assert!(matches!(error, StreamError::NoWeights { .. }), "{error}");
}

#[test]
fn shards_are_held_to_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    fs::write(&index, r#"{"weight_map":{"a":"one.safetensors"}}"#).unwrap();
    let shard = folder.path().join("one.safetensors");
    make_pipe(&shard);
    check(&open(&index, &block_types).unwrap_err(), &shard, "a pipe");
    fs::remove_file(&shard).unwrap();
    fs::create_dir(&shard).unwrap();
    check(&open(&index, &block_types).unwrap_err(), &shard, "a folder");
}
