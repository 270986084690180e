//! GGUF files written for a test by hand, and the types that the tests know.

use overglaze_stream::BlockType;

/// What a program passes: some of ggml's types.
pub(crate) fn block_types(id: u32) -> Option<BlockType> {
    let (tag, block_len, block_bytes) = match id {
        0 => ("F32", 1, 4),
        1 => ("F16", 1, 2),
        2 => ("Q4_0", 32, 18),
        8 => ("Q8_0", 32, 34),
        12 => ("Q4_K", 256, 144),
        14 => ("Q6_K", 256, 210),
        20 => ("IQ4_NL", 32, 18),
        30 => ("BF16", 1, 2),
        _ => return None,
    };
    Some(BlockType {
        tag,
        block_len,
        block_bytes,
    })
}

/// A file of version 3 with these counts of tensors and keys; `body` is what follows them, padded to 32 bytes.
pub(crate) fn gguf(counts: [u64; 2], body: &[Vec<u8>]) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend(counts.map(u64::to_le_bytes).concat());
    file.extend(body.concat());
    file.resize(file.len().next_multiple_of(32), 0);
    file
}

/// A metadata key with its value, which is of the type `type_id`.
pub(crate) fn key(name: &str, type_id: u32, value: &[u8]) -> Vec<u8> {
    [&text(name), type_id.to_le_bytes().as_slice(), value].concat()
}

/// What a list of numbers is as a value.
pub(crate) fn array(type_id: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [
        type_id.to_le_bytes().as_slice(),
        &len.to_le_bytes(),
        elements,
    ]
    .concat()
}

/// An entry of the tensor list; dimensions as the file has them, the row's length first.
pub(crate) fn tensor(name: &str, dimensions: &[u64], type_id: u32, offset: u64) -> Vec<u8> {
    let mut entry = text(name);
    entry.extend(u32::try_from(dimensions.len()).unwrap().to_le_bytes());
    entry.extend(dimensions.iter().flat_map(|number| number.to_le_bytes()));
    entry.extend(type_id.to_le_bytes());
    entry.extend(offset.to_le_bytes());
    entry
}

/// A text behind its length.
pub(crate) fn text(text: &str) -> Vec<u8> {
    [
        (text.len() as u64).to_le_bytes().as_slice(),
        text.as_bytes(),
    ]
    .concat()
}
