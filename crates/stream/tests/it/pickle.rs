//! Files of `torch.save` in both forms hold what torch says; `tests/data/make_pickles.py` wrote both.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf};

use bytes::Bytes;
use overglaze_stream::{WeightSource, open, source::PickleSource};

use crate::{
    gguf_bytes::block_types,
    pickled::{self, dict, int, storage, tensor},
    thread_heap::peak_of,
};

/// Files, and how many entries of each are no weights.
const FILES: &[(&str, usize)] = &[
    ("views.pt", 0),
    ("views_legacy.pth", 0),
    ("views_protocol4.bin", 0),
    ("views_legacy_protocol4.bin", 0),
    ("types.pt", 0),
    ("types_legacy.pth", 0),
    ("checkpoint.ckpt", 13),
    ("checkpoint_legacy.ckpt", 13),
    ("nested.pt", 3),
];

fn at(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/pickles")
        .join(name)
}

type Contents = BTreeMap<String, (String, Vec<usize>, String)>;

fn contents(source: &dyn WeightSource) -> Contents {
    let content = |name: &String| {
        let entry = &source.entries()[name];
        let mut hex = String::new();
        for byte in source.read(name).unwrap() {
            write!(hex, "{byte:02x}").unwrap();
        }
        (name.clone(), (entry.tag.clone(), entry.shape.clone(), hex))
    };
    source.entries().keys().map(content).collect()
}

#[test]
fn every_file_holds_what_torch_says() {
    for (name, _) in FILES {
        let source = open(&at(name), &block_types).unwrap();
        let expected = fs::read(at(&format!("{name}.json"))).unwrap();
        let expected: Contents = serde_json::from_slice(&expected).unwrap();
        assert!(!expected.is_empty());
        assert_eq!(contents(&*source), expected, "{name}");
    }
}

#[test]
fn notes_say_that_it_is_in_memory_and_what_was_skipped() {
    for (name, num_skipped) in FILES {
        let path = at(name);
        let source = open(&path, &block_types).unwrap();
        let label = path.display();
        let mut expected = vec![format!(
            "`{label}` is a PyTorch file: it was loaded whole into memory and cannot be streamed; convert it \
             to safetensors"
        )];
        if *num_skipped > 0 {
            expected.push(format!(
                "`{label}`: {num_skipped} entries beside the weights were skipped"
            ));
        }
        assert_eq!(source.notes(), expected);
    }
}

#[test]
fn the_content_decides_and_not_the_extension() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [("views.pt", "a.weights"), ("views_legacy.pth", "b")] {
        let path = folder.path().join(to);
        fs::copy(at(from), &path).unwrap();
        assert!(
            open(&path, &block_types)
                .unwrap()
                .entries()
                .contains_key("tied")
        );
    }
}

#[test]
fn contiguous_tensors_are_views_of_the_file() {
    let file = Bytes::from(fs::read(at("views.pt")).unwrap());
    let source = PickleSource::from_bytes("memory", file.clone()).unwrap();
    let is_view = |name| {
        file.as_ptr_range()
            .contains(&source.read(name).unwrap().as_ptr())
    };
    assert!(["base", "tied", "rows", "scalar"].into_iter().all(is_view));
    assert!(!is_view("transposed"));
    assert_eq!(source.label(), "memory");
    assert!(source.metadata().is_empty());
}

#[test]
fn opening_takes_the_file_once() {
    const NUM_BYTES: i32 = 8 << 20;
    let storage = storage("ByteStorage", "0", NUM_BYTES);
    let weights = dict(&[
        ("a", tensor(&storage, 0, &[NUM_BYTES], &[1])),
        ("tied", tensor(&storage, 0, &[NUM_BYTES], &[1])),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pt");
    fs::write(&path, pickled::zip(&weights, &vec![7; NUM_BYTES as usize])).unwrap();
    let (source, heap_bytes) = peak_of(|| open(&path, &block_types).unwrap());
    assert_eq!(source.entries().len(), 2);
    let slack_bytes = 64 << 10;
    assert!(
        heap_bytes <= NUM_BYTES as isize + slack_bytes,
        "{heap_bytes} bytes"
    );
}

#[test]
fn the_first_wrapper_with_weights_is_taken() {
    let one = storage("ByteStorage", "0", 1);
    let weight = tensor(&one, 0, &[1], &[1]);
    let inner = dict(&[("w", weight.clone())]);
    let cases: &[(Vec<u8>, &str)] = &[
        (
            dict(&[("params", inner.clone()), ("params_ema", inner.clone())]),
            "w",
        ),
        (
            dict(&[("state_dict", dict(&[("module", inner.clone())]))]),
            "w",
        ),
        // Without weights it stands for nothing.
        (
            dict(&[("params", dict(&[("lr", int(1))])), ("g", inner.clone())]),
            "g.w",
        ),
        // Beside weights it is one of them.
        (dict(&[("b", weight), ("model", inner)]), "b,model.w"),
    ];
    for (object, expected) in cases {
        let file = pickled::zip(object, &[7]);
        let source = PickleSource::from_bytes("memory", file.into()).unwrap();
        let names: Vec<_> = source.entries().keys().map(String::as_str).collect();
        assert_eq!(names.join(","), *expected);
    }
}
