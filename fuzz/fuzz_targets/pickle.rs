//! A PyTorch file of any bytes is read or refused, and nothing in it runs.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use overglaze_stream::{WeightSource, source::PickleSource};

fuzz_target!(|file: &[u8]| {
    let Ok(source) = PickleSource::from_bytes("fuzz", Bytes::copy_from_slice(file)) else {
        return;
    };
    for name in source.entries().keys() {
        let _ = source.read(name);
    }
});
