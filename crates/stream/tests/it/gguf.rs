//! GGUF files: what gguf-py wrote is read as gguf-py reads it.

use std::{collections::BTreeMap, fs, path::PathBuf};

use bytes::Bytes;
use overglaze_stream::{
    GgufArray, GgufType, GgufValue, MemorySource, WeightSource, open, source::GgufSource,
};
use serde_json::Value;

use crate::{
    gguf_bytes::{array, block_types, gguf, key, tensor, text},
    written::safetensors,
};

fn data(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    folder.join("tests/data/gguf").join(name)
}

fn tiny() -> GgufSource {
    GgufSource::open(&data("tiny.gguf"), &block_types).unwrap()
}

fn expected() -> MemorySource {
    let file = fs::read(data("tiny_expected.safetensors")).unwrap();
    MemorySource::from_safetensors("expected", file.into()).unwrap()
}

/// The JSON that stands in a metadata text of the expected file.
fn noted(key: &str) -> BTreeMap<String, Value> {
    serde_json::from_str(&expected().metadata()[key]).unwrap()
}

fn source(file: Vec<u8>) -> GgufSource {
    GgufSource::from_bytes("memory", file.into(), &block_types).unwrap()
}

#[test]
fn every_tensor_is_where_and_what_it_was_written_as() {
    let file = fs::read(data("tiny.gguf")).unwrap();
    let (source, layout) = (tiny(), noted("layout"));
    assert_eq!(source.entries().len(), layout.len());
    for (name, expected) in layout {
        let entry = &source.entries()[&name];
        assert_eq!(entry.tag, expected["type"].as_str().unwrap(), "{name}");
        assert_eq!(entry.num_bytes, expected["nbytes"].as_u64().unwrap());
        assert_eq!(entry.file, Some(data("tiny.gguf")));
        let mut shape: Vec<usize> = serde_json::from_value(expected["shape_ne"].clone()).unwrap();
        shape.reverse();
        let is_noted = name == "reshaped.weight";
        assert_eq!(entry.shape, if is_noted { vec![16, 64] } else { shape });
        let begin = usize::try_from(expected["offset"].as_u64().unwrap()).unwrap();
        let bytes = source.read(&name).unwrap();
        assert_eq!(bytes, file[begin..begin + bytes.len()], "{name}");
    }
}

#[test]
fn bytes_are_those_that_were_packed() {
    let (source, expected) = (tiny(), expected());
    for name in source.entries().keys() {
        // Packed bytes, or plain values of the type they are stored in.
        let packed = expected.read(&format!("param.{name}"));
        let stored = packed.or_else(|_| expected.read(&format!("out.{name}")));
        assert_eq!(source.read(name).unwrap(), stored.unwrap(), "{name}");
    }
}

#[test]
fn every_type_of_metadata_is_read() {
    let source = tiny();
    let mut expected = noted("metadata");
    expected.retain(|key, _| !key.starts_with("GGUF."));
    let found = source.values().iter();
    let found: BTreeMap<_, _> = found
        .map(|(key, value)| (key.clone(), serde_json::to_value(value).unwrap()))
        .collect();
    assert_eq!(found, expected);
    let types = [
        ("t.uint8", GgufType::U8),
        ("t.int8", GgufType::I8),
        ("t.uint16", GgufType::U16),
        ("t.int16", GgufType::I16),
        ("t.uint32", GgufType::U32),
        ("t.int32", GgufType::I32),
        ("t.float32", GgufType::F32),
        ("t.bool_true", GgufType::Bool),
        ("t.string", GgufType::Text),
        ("t.array_int", GgufType::Array),
        ("t.uint64", GgufType::U64),
        ("t.int64", GgufType::I64),
        ("t.float64", GgufType::F64),
    ];
    for (key, value_type) in types {
        assert_eq!(source.values()[key].value_type(), value_type, "{key}");
        assert_eq!(GgufType::from_id(value_type.id()), Some(value_type));
    }
    assert_eq!(GgufType::from_id(13), None);
}

#[test]
fn metadata_are_texts() {
    let source = tiny();
    let cases = [
        ("general.architecture", "flux"),
        ("general.alignment", "64"),
        ("t.uint64", "9223372036854775813"),
        ("t.int8", "-100"),
        ("t.float32", "1.5"),
        ("t.bool_false", "false"),
        ("t.string", "h\u{e9}llo \u{2713} \n tab\t"),
        ("t.array_int", "[1,-2,300000]"),
        ("t.array_string", "[\"a\",\"\",\"\u{fc}\"]"),
        ("comfy.gguf.orig_shape.reshaped.weight", "[16,64]"),
    ];
    for (key, text) in cases {
        assert_eq!(source.metadata()[key], text);
    }
    assert_eq!(source.metadata().len(), source.values().len());
}

#[test]
fn values_are_typed() {
    let source = tiny();
    let values = source.values();
    assert_eq!(values["general.architecture"].as_str(), Some("flux"));
    assert_eq!(values["t.int8"].as_u64(), None);
    assert_eq!(values["t.uint16"].as_u64(), Some(60000));
    assert_eq!(values["t.float32"].as_str(), None);
    let array = values["t.array_string"].as_array().unwrap();
    let texts: Vec<_> = array.iter().map(|text| text.to_string()).collect();
    assert_eq!(texts, ["a", "", "\u{fc}"]);
    assert_eq!((array.len(), array.element_type()), (3, GgufType::Text));
    let numbers = [
        GgufValue::I32(1),
        GgufValue::I32(-2),
        GgufValue::I32(300_000),
    ];
    let written = GgufArray::new(GgufType::I32, &numbers);
    assert_eq!(values["t.array_int"].as_array(), written.as_ref());
    assert_eq!(GgufArray::new(GgufType::U32, &numbers), None);
}

#[test]
fn long_texts_and_arrays_are_values_but_no_metadata() {
    let long = "x".repeat(20_000);
    let file = gguf(
        [0, 3],
        &[
            key("long", 8, &text(&long)),
            key("tokens", 9, &array(8, 1000, &text("ab").repeat(1000))),
            key(
                "deep",
                9,
                &array(9, 2, &array(4, 1, &[7, 0, 0, 0]).repeat(2)),
            ),
        ],
    );
    let source = source(file);
    assert_eq!(source.values()["long"].as_str(), Some(long.as_str()));
    let tokens = source.values()["tokens"].as_array().unwrap();
    assert_eq!(tokens.iter().count(), 1000);
    assert_eq!(tokens.iter().last().unwrap().as_str(), Some("ab"));
    let keys: Vec<_> = source.metadata().iter().collect();
    assert_eq!(keys, [(&"deep".to_owned(), &"[[7],[7]]".to_owned())]);
}

#[test]
fn version_2_is_read_as_well() {
    let mut file = fs::read(data("tiny.gguf")).unwrap();
    file[4] = 2;
    let second = source(file);
    assert_eq!(second.values(), tiny().values());
    assert_eq!(second.entries().len(), 14);
}

#[test]
fn tensors_are_views_of_the_file() {
    let file = Bytes::from(fs::read(data("tiny.gguf")).unwrap());
    let start = file.as_ptr().addr();
    let source = GgufSource::from_bytes("memory", file, &block_types).unwrap();
    let tensor = source.read("f32_2d").unwrap();
    assert_eq!(tensor.as_ptr().addr() - start, 1344);
    assert_eq!(source.label(), "memory");
    assert_eq!(source.entries()["f32_2d"].file, None);
    let error = source.read("none").unwrap_err().to_string();
    assert!(
        error.starts_with("`memory` has no tensor `none`"),
        "{error}"
    );
}

#[test]
fn scalars_empty_tensors_and_gaps_are_read() {
    let entries = [
        tensor("scalar", &[], 0, 64),
        tensor("empty", &[0, 7], 0, 0),
        tensor("wide", &[2, 1, 1, 1], 24, 0),
    ];
    let mut file = gguf([3, 0], &entries);
    let begin = file.len();
    file.resize(begin + 68, 5);
    let source = source(file);
    assert_eq!(source.entries()["scalar"].shape, [0; 0]);
    assert_eq!(source.entries()["empty"].shape, [7, 0]);
    assert_eq!(source.entries()["wide"].shape, [1, 1, 1, 2]);
    assert_eq!(source.entries()["wide"].tag, "I8");
    let sizes = ["scalar", "empty", "wide"].map(|name| source.read(name).unwrap().len());
    assert_eq!(sizes, [4, 0, 2]);
}

#[test]
fn a_noted_shape_may_have_more_dimensions_and_any_whole_numbers() {
    let shape = [1_u64, 2, 1, 1, 1].map(u64::to_le_bytes).concat();
    let noted = key("comfy.gguf.orig_shape.a", 9, &array(10, 5, &shape));
    let other = key("comfy.gguf.orig_shape.none", 9, &array(10, 5, &shape));
    let file = gguf([1, 2], &[noted, other, tensor("a", &[2], 24, 0)]);
    let file = [file, vec![0; 2]].concat();
    assert_eq!(source(file).entries()["a"].shape, [1, 2, 1, 1, 1]);
}

#[test]
fn a_path_is_opened_by_its_content_or_extension() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let tiny = fs::read(data("tiny.gguf")).unwrap();
    for name in ["model.gguf", "model.GGUF", "model.bin", "model"] {
        let source = open(&put(name, &tiny), &block_types).unwrap();
        assert_eq!(source.entries().len(), 14, "{name}");
    }
    let check = |name: &str, content: &[u8], words: &str| {
        let error = open(&put(name, content), &block_types).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    };
    let page = b"<!DOCTYPE html><html>";
    check(
        "model.safetensors",
        &tiny,
        "is a GGUF file, not a safetensors file",
    );
    check(
        "page.gguf",
        page,
        "is an HTML page, not a GGUF file; a server's answer",
    );
    check(
        "renamed.gguf",
        &safetensors(&[("a", &[1])]),
        "is a safetensors file, not a GGUF file; give it a name that ends in `.safetensors`",
    );
    check(
        "empty.gguf",
        b"",
        "is empty, not a GGUF file; the download failed",
    );
}
