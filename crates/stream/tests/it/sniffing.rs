//! Each kind of wrong file is told by its first bytes.

use overglaze_stream::source::{Impostor, sniff};

use crate::written::safetensors;

#[test]
fn each_kind_is_told() {
    let cases: &[(&[u8], Option<Impostor>)] = &[
        (b"", Some(Impostor::Empty)),
        (b"  <!DOCTYPE HTML><html>", Some(Impostor::Html)),
        (b"<html lang=\"en\">", Some(Impostor::Html)),
        (b"\xEF\xBB\xBF<?xml version=\"1.0\"?>", Some(Impostor::Xml)),
        (b"{\"error\":\"Access denied\"}", Some(Impostor::Json)),
        (
            b"version https://git-lfs.github.com/spec/v1",
            Some(Impostor::LfsPointer),
        ),
        // The count of tensors may be the byte of `{`.
        (b"GGUF\x03\0\0\0{\0\0\0\0\0\0\0", Some(Impostor::Gguf)),
        (b"PK\x03\x04\x14\0\0\0\0\0", Some(Impostor::Zip)),
        (b"\x80\x02}q\x00X\x01\0\0\0a", Some(Impostor::Pickle)),
        // A header of 0x0280 bytes begins like a pickle, one of 0x227b bytes like JSON.
        (b"\x80\x02\0\0\0\0\0\0{\"a\"", None),
        (b"{\"\0\0\0\0\0\0{\"a\"", None),
        (b"\x01\x02\x03", None),
    ];
    for (first, expected) in cases {
        assert_eq!(sniff(first), *expected, "{first:?}");
    }
    assert_eq!(sniff(&safetensors(&[("a", &[1])])), None);
}
