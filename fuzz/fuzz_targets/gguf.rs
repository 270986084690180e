//! A GGUF file of any bytes is read or refused: its metadata, its table and every tensor.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use overglaze_quant::formats_by_name;
use overglaze_stream::{BlockType, WeightSource, source::GgufSource};

fuzz_target!(|file: &[u8]| {
    let file = Bytes::copy_from_slice(file);
    let Ok(source) = GgufSource::from_bytes("fuzz", file, &block_type) else {
        return;
    };
    let _ = source.typed_metadata();
    for name in source.entries().keys() {
        let _ = source.read(name);
    }
});

fn block_type(id: u32) -> Option<BlockType> {
    let mut formats = formats_by_name().into_iter();
    let format = formats.find(|format| format.ggml_type() == Some(id))?;
    let block = format.block()?;
    Some(BlockType {
        tag: format.tags().first()?,
        block_len: block.len,
        block_bytes: block.bytes,
    })
}
