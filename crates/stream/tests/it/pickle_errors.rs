//! Every wrong `PyTorch` file is refused with its own words, and nothing of it is run.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use overglaze_stream::{
    StreamError, open,
    source::{PickleError, PickleSource},
};

use crate::{
    gguf_bytes::block_types,
    pickled::{
        archive, dict, global, int, ints, legacy, pickle, storage, tensor, text, tuple, zip,
    },
    thread_heap::peak_of,
    written::chain,
};

/// File, and what its message must hold.
const VERDICTS: &[(&str, &str)] = &[
    (
        "pt_zip_reduce.pt",
        "its zip archive's pickle would run `__builtin__.print`, expected only what rebuilds tensors",
    ),
    (
        "pt_legacy_reduce.pth",
        "its legacy pickle would run `__builtin__.print`, expected only what rebuilds tensors",
    ),
    (
        "pt_zip_bomb.pt",
        "the member `archive/data.pkl` is compressed or encrypted (method 8)",
    ),
    (
        "pt_zip_slip.pt",
        "the member `../../evil` has no plain relative path as its name",
    ),
];

#[test]
fn every_malformed_file_gets_its_verdict() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/malformed");
    for (name, words) in VERDICTS {
        let started = Instant::now();
        let (result, heap_bytes) = peak_of(|| open(&folder.join(name), &block_types));
        let found = chain(&result.unwrap_err());
        assert!(
            found.contains(words) && found.contains(name),
            "expected `{words}`, found `{found}`"
        );
        assert!(heap_bytes < 1 << 20, "{name}: {heap_bytes} bytes");
        assert!(started.elapsed() < Duration::from_secs(1), "{name}");
    }
}

fn refusal(file: Vec<u8>) -> StreamError {
    PickleSource::from_bytes("memory", file.into()).unwrap_err()
}

fn check(cases: Vec<(Vec<u8>, &str)>) {
    for (file, words) in cases {
        let found = chain(&refusal(file));
        assert!(
            found.starts_with("`memory`") && found.contains(words),
            "expected `{words}`, found `{found}`"
        );
    }
}

fn bytes(num_elements: i32) -> Vec<u8> {
    storage("ByteStorage", "0", num_elements)
}

fn weight() -> Vec<u8> {
    tensor(&bytes(1), 0, &[1], &[1])
}

#[test]
fn archives_are_checked() {
    let good = pickle(&dict(&[("a", weight())]));
    let with = |members: &[(&str, &[u8])]| {
        archive(&[&[("a/data.pkl", &good[..]), ("a/data/0", &[7])], members].concat())
    };
    let mut cut = with(&[]);
    cut.truncate(cut.len() - 30);
    check(vec![
        (cut, "the zip archive cannot be read"),
        (
            archive(&[("notes", b"x")]),
            "with 0 members named `data.pkl` in a folder, expected one",
        ),
        (
            with(&[("b/data.pkl", &good)]),
            "with 2 members named `data.pkl` in a folder",
        ),
        (
            with(&[("a/data/0", &[8])]),
            "the member `a/data/0` stands twice",
        ),
        (with(&[("a/byteorder", b"big")]), "holds big-endian numbers"),
        (
            archive(&[("a/data.pkl", &good)]),
            "the storage `0` is not in the file",
        ),
        (
            zip(&dict(&[("a", weight())]), &[7; 3]),
            "the storage `0` has 3 bytes, expected 1",
        ),
    ]);
    // Names are checked where they are read, for the writer of archives refuses to write some.
    let slashes = with(&[("a/x=y", b"")]);
    for (from, to) in [
        ("a/x=y", "a/x\\y"),
        ("a/x=y", "/aaay"),
        ("a/x=y", "../ay"),
        ("a/x=y", "a\0x=y"),
    ] {
        check(vec![(
            replaced(&slashes, from, to),
            "has no plain relative path as its name",
        )]);
    }
}

fn replaced(file: &[u8], from: &str, to: &str) -> Vec<u8> {
    let mut file = file.to_vec();
    for start in 0..file.len() - from.len() {
        if file[start..].starts_with(from.as_bytes()) {
            file[start..start + to.len()].copy_from_slice(to.as_bytes());
        }
    }
    file
}

#[test]
fn names_off_the_list_are_refused_called_or_not() {
    let names = [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("torch", "load"),
        ("torch._utils", "_rebuild_tensor_v2.__globals__"),
        (
            "pytorch_lightning.callbacks.model_checkpoint",
            "ModelCheckpoint",
        ),
    ];
    for (module, name) in names {
        let words = format!("would run `{module}.{name}`, expected only what rebuilds tensors");
        let stacked = [text(module), text(name), b"\x93".to_vec()].concat();
        let called = [global(module, name), b")R".to_vec()].concat();
        check(vec![
            (zip(&dict(&[("a", global(module, name))]), &[]), &words),
            (zip(&stacked, &[]), &words),
            (legacy(&dict(&[]), &called, &[]), &words),
            (legacy(&called, &[], &[]), &words),
        ]);
    }
    let error = refusal(zip(&global("os", "system"), &[]));
    let expected = "`memory`: its zip archive's pickle would run `os.system`, expected only what rebuilds tensors, \
                    so it is refused and nothing was run; load it in Python with `weights_only` and save its \
                    state dict as safetensors";
    assert_eq!(error.to_string(), expected);
    check(vec![(
        zip(&storage("QInt8Storage", "0", 1), &[]),
        "a storage has the type `torch.QInt8Storage`",
    )]);
}

#[test]
fn legacy_files_are_checked() {
    let object = dict(&[("a", weight())]);
    let big = dict(&[("little_endian", b"\x89".to_vec())]);
    let none = dict(&[]);
    let mut other = legacy(&none, &object, &[]);
    other[18..22].copy_from_slice(&[1; 4]);
    check(vec![
        (
            pickle(&none),
            "is a bare pickle, expected a file written by `torch.save`",
        ),
        (legacy(&big, &object, &[]), "holds big-endian numbers"),
        (other, "expected the protocol version 1001"),
        (
            legacy(&none, &object, &[]),
            "the storage `0` is not in the file",
        ),
        (
            legacy(&none, &object, &[("1", 1, &[7])]),
            "expected each storage of the object once",
        ),
        (
            legacy(&none, &object, &[("0", 2, &[7])]),
            "where 1 more bytes were expected",
        ),
        (
            legacy(&none, &object, &[("0", u64::MAX, &[7])]),
            "more bytes were expected",
        ),
        (
            legacy(&none, &object, &[("0", 2, &[7, 7])]),
            "has 2 bytes, expected 1",
        ),
    ]);
}

#[test]
fn instructions_are_checked() {
    let twice = tuple(&[bytes(1), bytes(2)]);
    let cases: Vec<(&[u8], &str)> = vec![
        (
            b"i",
            "has the instruction 0x69 at byte 2, which torch.save does not write",
        ),
        (
            b"X\xff\xff\xff\xff",
            "ends at byte 8 where 4294967294 more bytes were expected",
        ),
        (
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
            "more bytes were expected",
        ),
        (b"X\x01\0\0\0\xff", "expected text in UTF-8"),
        (b"c", "expected a line of at most 1024 bytes"),
        (b"", "expected a value on the stack"),
        (b"t", "expected a mark on the stack"),
        (b"N(0", "expected a value on the stack"),
        (b"h\0", "expected a value that was put into the memo"),
        (b"NNs", "expected a value on the stack"),
        (b"}(Nu", "expected a value for each key"),
        (b"NNNs", "expected a dictionary on the stack"),
        (b"}Na", "expected a list on the stack"),
        (b"K\x01Nb", "expected a dictionary on the stack"),
        (b"NNR", "expected a short tuple on the stack"),
        (b"N)R", "expected a name to call on the stack"),
        (b"NN\x93", "expected a module and a name on the stack"),
        (b")Q", "expected a storage's type, key, place and size"),
        (
            &twice,
            "expected the same type and size at every use of a storage",
        ),
    ];
    check(
        cases
            .into_iter()
            .map(|(object, words)| (zip(object, &[]), words))
            .collect(),
    );
}

#[test]
fn arguments_are_checked() {
    let reduce = |module, name, arguments: &[Vec<u8>]| {
        [global(module, name), tuple(arguments), b"R".to_vec()].concat()
    };
    let four = [bytes(1), int(-1), ints(&[1]), ints(&[1])];
    check(vec![
        (
            zip(&reduce("torch", "Size", &[]), &[]),
            "expected the arguments that a name takes",
        ),
        (
            zip(&reduce("torch._utils", "_rebuild_tensor", &four), &[]),
            "expected a tensor's storage, type, offset, sizes and strides",
        ),
        (
            zip(
                &reduce(
                    "torch._utils",
                    "_rebuild_parameter",
                    &[int(1), int(1), int(1)],
                ),
                &[],
            ),
            "expected a tensor in a parameter",
        ),
    ]);
}

#[test]
fn tensors_are_checked_against_their_storage() {
    let file = |offset, shape: &[i32], strides: &[i32]| {
        zip(
            &dict(&[("a", tensor(&bytes(6), offset, shape, strides))]),
            &[7; 6],
        )
    };
    let outside = "does not fit its storage of 6 elements";
    check(vec![
        (
            file(1, &[6], &[1]),
            "the tensor `a` of shape [6] and strides [1] at element 1 does not fit",
        ),
        (file(0, &[2, 3], &[4, 1]), outside),
        (file(i32::MAX, &[1], &[1]), outside),
        (file(0, &[i32::MAX; 64], &[i32::MAX; 64]), outside),
        (
            file(0, &[-1], &[1]),
            "expected a size and a stride for each dimension",
        ),
        (
            file(0, &[2], &[-1]),
            "expected a size and a stride for each dimension",
        ),
        (
            file(0, &[2, 3], &[1]),
            "expected a size and a stride for each dimension",
        ),
        (
            file(0, &[1; 65], &[1; 65]),
            "expected a size and a stride for each dimension",
        ),
        (
            file(0, &[i32::MAX], &[0]),
            "with the tensor `a` its tensors take more than",
        ),
        (file(0, &[i32::MAX; 64], &[0; 64]), "times the file"),
        (
            zip(&dict(&[("a", int(1)), ("b", text("x"))]), &[]),
            "only 2 other entries",
        ),
        (
            zip(&weight(), &[7]),
            "holds no dictionary with tensors by name",
        ),
        (
            zip(&dict(&[("a", weight()), ("a", weight())]), &[7]),
            "`a` is listed twice",
        ),
    ]);
}

#[test]
fn what_refers_to_itself_or_grows_is_bounded() {
    // A dictionary in itself, and thirty levels that hold the next one twice.
    let cycle = b"}q\0X\x01\0\0\0ah\0s".to_vec();
    let mut bomb = b"}".to_vec();
    for level in 0..30 {
        bomb.extend([b'q', level, b'0', b'}', b'(']);
        for key in ["a", "b"] {
            bomb.extend(text(key));
            bomb.extend([b'h', level]);
        }
        bomb.push(b'u');
    }
    let long = dict(&[(&"x".repeat(600), weight())]);
    check(vec![
        (
            zip(&cycle, &[]),
            "more than 32 dictionaries inside each other",
        ),
        (
            zip(&bomb, &[]),
            "more than 1048576 entries in its dictionaries",
        ),
        (zip(&long, &[7]), "more than 512 bytes in a tensor's name"),
        (
            zip(&vec![b'N'; 1 << 20], &[]),
            "more than 262144 values on its stack",
        ),
        (
            zip(&vec![b'('; 1 << 20], &[]),
            "more than 262144 marks on its stack",
        ),
        (
            zip(&b"N0".repeat(5 << 20), &[]),
            "more than 4194304 values, more than a checkpoint has",
        ),
    ]);
    let error = refusal(zip(&long, &[7]));
    let StreamError::Pickle(error) = error else {
        panic!("{error}");
    };
    assert!(matches!(*error, PickleError::Limit { .. }));
}
