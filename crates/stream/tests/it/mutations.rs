//! Thousands of small damages to a good file: each gives a value or an error, never a panic, and takes
//! little memory.

use std::fs;

use bytes::Bytes;
use overglaze_stream::{MemorySource, WeightSource, open};

use crate::{
    gguf_bytes::block_types,
    random::Random,
    thread_heap::peak_of,
    written::{safetensors, with_header},
};

const NUM_FILES: u64 = 5000;

/// Fewer, for each is written to the disk first.
const NUM_INDEXES: u64 = 1000;

/// The files have less than 1 KB; what a reader takes grows with that, not with a number in the file.
const MAX_HEAP_BYTES: isize = 1 << 18;

const HEADER: &str = r#"{"__metadata__":{"format":"pt","note":"a\u00e9"},
"a.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},
"a.bias":{"dtype":"F32","shape":[],"data_offsets":[12,16]},
"b":{"dtype":"F4","shape":[4,4],"data_offsets":[16,24]},
"none":{"dtype":"I64","shape":[0,7],"data_offsets":[24,24]}}"#;

const INDEX: &str = r#"{"metadata":{"total_size":6},
"weight_map":{"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"}}"#;

/// What JSON and its numbers are made of: most other insertions end in the same syntax error.
const TELLING: &[u8] = b"{}[]\",:-.019eE\\ u\0\xFF";

#[test]
fn damaged_files_give_a_value_or_an_error() {
    let check = |seed: u64| {
        let mut random = Random::new(seed);
        let file = if seed.is_multiple_of(2) {
            damaged(&with_header(HEADER, &[7; 24]), &mut random)
        } else {
            // The length is right, so that the damage is found by what comes after.
            with_header(damaged(HEADER.as_bytes(), &mut random), &[7; 24])
        };
        let file = Bytes::from(file);
        let (source, heap_bytes) = peak_of(|| MemorySource::from_safetensors("memory", file));
        assert!(heap_bytes <= MAX_HEAP_BYTES, "{seed}: {heap_bytes} bytes");
        source.is_ok_and(|source| reads_whole(&source))
    };
    check_some_are_read(NUM_FILES, check);
}

#[test]
fn damaged_indexes_give_a_value_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    write("one.safetensors", &safetensors(&[("a", &[1]), ("b", &[2])]));
    write("two.safetensors", &safetensors(&[("c", &[3])]));
    let check = |seed: u64| {
        let index = damaged(INDEX.as_bytes(), &mut Random::new(seed));
        let path = write("model.safetensors.index.json", &index);
        let (source, heap_bytes) = peak_of(|| open(&path, &block_types));
        assert!(heap_bytes <= MAX_HEAP_BYTES, "{seed}: {heap_bytes} bytes");
        source.is_ok_and(|source| reads_whole(&*source))
    };
    check_some_are_read(NUM_INDEXES, check);
}

/// Both outcomes must occur: else the damages are too large or too small to tell anything.
fn check_some_are_read(num_cases: u64, is_read: impl Fn(u64) -> bool) {
    let num_read = (0..num_cases).filter(|seed| is_read(*seed)).count() as u64;
    assert!((10..num_cases / 2).contains(&num_read), "{num_read} read");
}

/// What was accepted can be read.
fn reads_whole(source: &dyn WeightSource) -> bool {
    for (name, entry) in source.entries() {
        assert_eq!(source.read(name).unwrap().len() as u64, entry.num_bytes);
    }
    true
}

/// One to three bits flipped, ends cut off, or bytes put in.
fn damaged(whole: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=random.below(3) {
        let position = random.below(bytes.len() + 1);
        match (random.below(8), bytes.get_mut(position)) {
            (0..4, Some(byte)) => *byte ^= 1 << random.below(8),
            (4, _) => bytes.truncate(position),
            (5, _) => bytes.insert(position, random.byte()),
            _ => bytes.insert(position, TELLING[random.below(TELLING.len())]),
        }
    }
    bytes
}
