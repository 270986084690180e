//! Safetensors files written for a test.

use std::fmt::Write as _;

/// A safetensors file of `U8` tensors `(name, bytes)`, in this order.
pub(crate) fn safetensors(tensors: &[(&str, &[u8])]) -> Vec<u8> {
    let mut header = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
    let mut data = Vec::new();
    for (name, bytes) in tensors {
        let begin = data.len();
        data.extend_from_slice(bytes);
        let (len, end) = (bytes.len(), data.len());
        write!(
            header,
            ",\"{name}\":{{\"dtype\":\"U8\",\"shape\":[{len}],\"data_offsets\":[{begin},{end}]}}"
        )
        .unwrap();
    }
    header.push('}');
    with_header(&header, &data)
}

/// A file of this header and this data, whatever they are.
pub(crate) fn with_header(header: impl AsRef<[u8]>, data: &[u8]) -> Vec<u8> {
    let header = header.as_ref();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.extend_from_slice(data);
    file
}

/// An error and its causes, as a program prints them.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, ": {error}").unwrap();
        cause = error.source();
    }
    text
}
