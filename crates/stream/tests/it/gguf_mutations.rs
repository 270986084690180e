//! Every cut and thousands of small damages to a good GGUF file: each gives a value or an error, never a panic, and
//! takes little memory.

use std::{fs, path::Path};

use bytes::Bytes;
use overglaze_stream::{StreamError, WeightSource, source::GgufSource};

use crate::{gguf_bytes::block_types, random::Random, thread_heap::peak_of};

/// The header of the file has 1.3 KB; what a reader takes grows with that, not with a number in the file.
const MAX_HEAP_BYTES: isize = 1 << 16;

/// Bytes of the file's header.
const HEADER_BYTES: usize = 1344;

const NUM_FILES: usize = 5000;

fn tiny() -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read(folder.join("tests/data/gguf/tiny.gguf")).unwrap()
}

fn parse(file: Bytes) -> Result<GgufSource, StreamError> {
    let (source, heap_bytes) = peak_of(|| GgufSource::from_bytes("memory", file, &block_types));
    assert!(heap_bytes <= MAX_HEAP_BYTES, "{heap_bytes} bytes");
    source
}

/// What was accepted can be read.
fn is_read_whole(file: Vec<u8>) -> bool {
    let Ok(source) = parse(file.into()) else {
        return false;
    };
    for (name, entry) in source.entries() {
        assert_eq!(source.read(name).unwrap().len() as u64, entry.num_bytes);
    }
    for value in source.values().values() {
        let array = value.as_array();
        assert!(array.is_none_or(|array| array.iter().count() == array.len()));
    }
    true
}

#[test]
fn every_cut_is_refused() {
    let whole = Bytes::from(tiny());
    for len in 0..whole.len() {
        assert!(parse(whole.slice(..len)).is_err(), "{len} bytes");
    }
}

#[test]
fn every_damaged_byte_gives_a_value_or_an_error() {
    let whole = tiny();
    let mut num_read = 0;
    for position in 0..HEADER_BYTES {
        for damage in [1, 0x80, 0xFF] {
            let mut file = whole.clone();
            file[position] ^= damage;
            num_read += usize::from(is_read_whole(file));
        }
    }
    assert!(
        (10..2 * HEADER_BYTES).contains(&num_read),
        "{num_read} read"
    );
}

#[test]
fn several_damages_give_a_value_or_an_error() {
    let whole = tiny();
    let check = |seed: &usize| {
        let mut random = Random::new(*seed as u64);
        let mut file = whole.clone();
        for _ in 0..=random.below(3) {
            let position = random.below(HEADER_BYTES);
            match random.below(4) {
                0 => file.insert(position, random.byte()),
                1 => drop(file.remove(position)),
                _ => file[position] = random.byte(),
            }
        }
        is_read_whole(file)
    };
    let num_read = (0..NUM_FILES).filter(check).count();
    assert!((10..NUM_FILES / 2).contains(&num_read), "{num_read} read");
}
