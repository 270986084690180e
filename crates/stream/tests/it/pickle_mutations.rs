//! Every cut and thousands of damaged bytes to files of both forms: a value or an error, never a panic, and
//! little memory.

use std::{fs, path::PathBuf};

use bytes::Bytes;
use overglaze_stream::{StreamError, WeightSource, source::PickleSource};

use crate::{random::Random, thread_heap::peak_of};

/// The files have at most 5 KB: this is what tensors of eight times that take, and the values of the pickle.
const MAX_HEAP_BYTES: isize = 1 << 18;

const FILES: [&str; 5] = [
    "views.pt",
    "views_legacy.pth",
    "views_protocol4.bin",
    "types.pt",
    "checkpoint_legacy.ckpt",
];

fn file(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/pickles");
    fs::read(folder.join(name)).unwrap()
}

fn read(file: &[u8]) -> Result<PickleSource, StreamError> {
    let file = Bytes::copy_from_slice(file);
    let (source, heap_bytes) = peak_of(|| PickleSource::from_bytes("memory", file));
    assert!(heap_bytes <= MAX_HEAP_BYTES, "{heap_bytes} bytes");
    let source = source?;
    for (name, entry) in source.entries() {
        assert_eq!(source.read(name)?.len() as u64, entry.num_bytes);
    }
    Ok(source)
}

#[test]
fn every_cut_is_refused() {
    for name in FILES {
        let whole = file(name);
        assert!(read(&whole).is_ok());
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).is_err(), "{name}: {len} bytes");
        }
    }
}

#[test]
fn damaged_files_give_a_value_or_an_error() {
    let mut random = Random::new(1);
    for name in FILES {
        let whole = file(name);
        let (mut num_read, mut num_refused) = (0, 0);
        for position in (random.below(3)..whole.len()).step_by(3) {
            let mut damaged = whole.clone();
            damaged[position] ^= 1 << random.below(8);
            if random.below(3) == 0 {
                damaged[position] = random.byte();
            }
            match read(&damaged) {
                Ok(_) => num_read += 1,
                Err(_) => num_refused += 1,
            }
        }
        assert!(
            num_read > 100 && num_refused > 100,
            "{name}: {num_read}, {num_refused}"
        );
    }
}
