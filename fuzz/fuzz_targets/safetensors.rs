//! A safetensors file of any bytes is read or refused.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use overglaze_stream::{MemorySource, WeightSource};

fuzz_target!(|file: &[u8]| {
    let Ok(source) = MemorySource::from_safetensors("fuzz", Bytes::copy_from_slice(file)) else {
        return;
    };
    for name in source.entries().keys() {
        let _ = source.read(name);
    }
});
