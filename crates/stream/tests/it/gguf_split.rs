//! GGUF files split into parts: any part opens all, and parts that do not belong together are told.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use overglaze_stream::{GgufLayout, GgufTensor, GgufValue, GgufWriter, open, source::GgufSource};
use tempfile::TempDir;

use crate::{gguf_bytes::block_types, written::safetensors};

/// A file of tensors of one byte, which says that it is part `number` of `count`.
fn part(number: u16, count: u16, num_tensors: i32, names: &[&str]) -> Vec<u8> {
    let tensors = names.iter().map(|name| GgufTensor {
        name: (*name).into(),
        shape: vec![1],
        type_id: 24,
        num_bytes: 1,
    });
    let values = [
        ("split.no", GgufValue::U16(number - 1)),
        ("split.count", GgufValue::U16(count)),
        ("split.tensors.count", GgufValue::I32(num_tensors)),
        ("only", GgufValue::U16(number)),
    ];
    let values = values.map(|(key, value)| (key.to_owned(), value));
    let layout = GgufLayout::new("part", tensors, values).unwrap();
    let mut writer = GgufWriter::begin(layout, Vec::new()).unwrap();
    for name in names {
        writer.tensor(name, &name.as_bytes()[..1]).unwrap();
    }
    writer.finish().unwrap()
}

fn name(number: u16) -> String {
    format!("model-{number:05}-of-00003.gguf")
}

/// Three parts; `c` is in the last.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, &name(1), &part(1, 3, 4, &["a", "b"]));
    put(&folder, &name(2), &part(2, 3, 4, &["d"]));
    put(&folder, &name(3), &part(3, 3, 4, &["c"]));
    folder
}

fn put(folder: &TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn check(path: &Path, named: &Path, expected: &str) {
    let error = open(path, &block_types).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("`{}`{expected}", named.display())
    );
}

#[test]
fn any_part_opens_all() {
    let folder = folder();
    let paths = (1..=3).map(|number| folder.path().join(name(number)));
    // A folder of parts is one file, too.
    for path in paths.chain([folder.path().to_owned()]) {
        let source = open(&path, &block_types).unwrap();
        let names: Vec<_> = source.entries().keys().collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert_eq!(source.read("c").unwrap(), &b"c"[..]);
        let file = source.entries()["d"].file.clone();
        assert_eq!(file, Some(folder.path().join(name(2))));
        assert_eq!(source.metadata()["only"], "1");
    }
}

#[test]
fn a_missing_part_is_named() {
    let folder = folder();
    fs::remove_file(folder.path().join(name(2))).unwrap();
    let path = folder.path().join(name(3));
    check(
        &path,
        &path,
        " is one of 3 parts, but `model-00002-of-00003.gguf` is not beside it; fetch that file",
    );
}

#[test]
fn parts_of_another_file_are_named() {
    let first = |folder: &TempDir| folder.path().join(name(1));
    let cases = [
        (
            part(2, 4, 4, &["d"]),
            " is part 2 of 4 with 4 tensors in all, expected part 2 of 3 with 4 tensors in all; the parts are not of one \
             file, so fetch them again",
        ),
        (
            part(3, 3, 4, &["d"]),
            " is part 3 of 3 with 4 tensors in all, expected part 2 of 3 with 4 tensors in all; the parts are not of one \
             file, so fetch them again",
        ),
        (
            part(1, 1, 4, &["d"]),
            " is a whole file, expected part 2 of 3 with 4 tensors in all; the parts are not of one file, so fetch them \
             again",
        ),
        (
            part(2, 3, 4, &["b"]),
            ": the tensor `b` is in `model-00001-of-00003.gguf` too; the parts are not of one file, so fetch them again",
        ),
    ];
    for (second, expected) in cases {
        let folder = folder();
        let path = put(&folder, &name(2), &second);
        check(&first(&folder), &path, expected);
    }
    let folder = folder();
    put(&folder, &name(2), &part(2, 3, 4, &["d", "e"]));
    check(
        &first(&folder),
        &first(&folder),
        " and its other parts have 5 tensors, expected 4; the parts are not of one file, so fetch them again",
    );
}

#[test]
fn a_part_keeps_its_name() {
    let folder = folder();
    let path = put(&folder, "renamed.gguf", &part(2, 3, 4, &["d"]));
    let expected = " is part 2 of 3, expected a name that ends in `-00002-of-00003.gguf`; give the parts the names they \
                    were written with";
    check(&path, &path, expected);
    let file = Bytes::from(part(2, 3, 4, &["d"]));
    let error = GgufSource::from_bytes("memory", file, &block_types).unwrap_err();
    assert_eq!(error.to_string(), format!("`memory`{expected}"));
}

#[test]
fn numbers_that_no_part_has_are_refused() {
    let folder = folder();
    let path = put(&folder, &name(1), &part(4, 3, 4, &["a"]));
    check(
        &path,
        &path,
        ": the key `split.no` is the U16 3, expected a number below `split.count`; write the file again",
    );
    let path = put(&folder, &name(1), &part(1, 5000, 4, &["a"]));
    check(
        &path,
        &path,
        ": the key `split.count` is the U16 5000, expected a count of at most 4096; write the file again",
    );
    let path = put(&folder, &name(1), &part(1, 3, -1, &["a"]));
    check(
        &path,
        &path,
        ": the key `split.tensors.count` is the I32 -1, expected a count; write the file again",
    );
}

#[test]
fn one_part_of_one_is_a_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "any.gguf", &part(1, 1, 1, &["a"]));
    assert_eq!(open(&path, &block_types).unwrap().entries().len(), 1);
}

#[test]
fn in_a_folder_safetensors_come_first() {
    let folder = folder();
    put(&folder, "any.safetensors", &safetensors(&[("s", &[1])]));
    let source = open(folder.path(), &block_types).unwrap();
    assert!(source.entries().contains_key("s"));
    fs::remove_file(folder.path().join("any.safetensors")).unwrap();
    put(&folder, "other.gguf", &part(1, 1, 1, &["a"]));
    let error = open(folder.path(), &block_types).unwrap_err().to_string();
    let expected = "holds several files of weights (model-00001-of-00003.gguf, other.gguf); name the one to open";
    assert!(error.ends_with(expected), "{error}");
}
