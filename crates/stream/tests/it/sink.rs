//! Writing safetensors files: what is written reads back, and what cannot be a file is refused.

use std::{collections::BTreeMap, io};

use bytes::Bytes;
use overglaze_stream::{
    MemorySource, SafetensorsLayout, SafetensorsWriter, StreamError, TensorEntry, WeightSource,
};

use crate::written::chain;

fn entry(tag: &str, shape: &[usize], num_bytes: u64) -> TensorEntry {
    TensorEntry {
        tag: tag.into(),
        shape: shape.into(),
        num_bytes,
        file: None,
    }
}

fn layout(tensors: &[(&str, TensorEntry)]) -> Result<SafetensorsLayout, StreamError> {
    let tensors = tensors
        .iter()
        .map(|(name, entry)| ((*name).into(), entry.clone()));
    SafetensorsLayout::new("out.safetensors", tensors, BTreeMap::new())
}

/// Tensors of elements of one, two, four and eight bytes, of odd sizes, one without elements and one scalar.
fn mixed() -> Vec<(&'static str, TensorEntry)> {
    vec![
        ("mask", entry("BOOL", &[3], 3)),
        ("b.weight", entry("BF16", &[3, 1], 6)),
        ("a.weight", entry("F32", &[2, 1], 8)),
        ("empty", entry("F32", &[0, 4], 0)),
        ("step", entry("I64", &[], 8)),
        ("a.bias", entry("BF16", &[1], 2)),
    ]
}

fn metadata() -> BTreeMap<String, String> {
    let pairs = [("format", "pt"), ("note", "\"quoted\"\n日本")];
    pairs.map(|(key, text)| (key.into(), text.into())).into()
}

/// The bytes of the tensor at `index` in the order of writing.
fn content(index: usize, entry: &TensorEntry) -> Vec<u8> {
    let first = u8::try_from(index).unwrap() * 20;
    (0..u8::try_from(entry.num_bytes).unwrap())
        .map(|offset| first + offset + 1)
        .collect()
}

fn written() -> Vec<u8> {
    let tensors = mixed()
        .into_iter()
        .map(|(name, entry)| (name.into(), entry));
    let layout = SafetensorsLayout::new("out.safetensors", tensors, metadata()).unwrap();
    let mut writer = SafetensorsWriter::begin(layout.clone(), Vec::new()).unwrap();
    for (index, (name, entry)) in layout.tensors().iter().enumerate() {
        writer.tensor(name, &content(index, entry)).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn what_is_written_reads_back() {
    let file = written();
    let source = MemorySource::from_safetensors("read", Bytes::from(file.clone())).unwrap();
    assert_eq!(*source.metadata(), metadata());
    let expected: BTreeMap<String, TensorEntry> = mixed()
        .into_iter()
        .map(|(name, entry)| (name.into(), entry))
        .collect();
    assert_eq!(*source.entries(), expected);
    let order = ["step", "a.weight", "empty", "a.bias", "b.weight", "mask"];
    for (index, name) in order.into_iter().enumerate() {
        let bytes = source.read(name).unwrap();
        assert_eq!(bytes, content(index, &expected[name]), "{name}");
    }
    assert_eq!(written(), file, "the same tensors make the same file");
}

#[test]
fn the_formats_own_crate_reads_it() {
    let file = written();
    let (header_bytes, header) = safetensors::SafeTensors::read_metadata(&file).unwrap();
    assert_eq!(header_bytes % 8, 0, "the data are aligned");
    assert_eq!(
        header.metadata().as_ref().unwrap()["note"],
        metadata()["note"]
    );
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    assert_eq!(tensors.len(), mixed().len());
    for (name, expected) in mixed() {
        let tensor = tensors.tensor(name).unwrap();
        assert_eq!(tensor.shape(), expected.shape, "{name}");
        let start = tensor.data().as_ptr().addr() - file.as_ptr().addr();
        let element_bytes = tensor.dtype().bitsize() / 8;
        assert_eq!(start % element_bytes, 0, "{name} is aligned");
    }
}

#[test]
fn without_metadata_there_is_no_entry_for_them() {
    let layout = layout(&[("a", entry("U8", &[1], 1))]).unwrap();
    let mut writer = SafetensorsWriter::begin(layout, Vec::new()).unwrap();
    writer.tensor("a", &[7]).unwrap();
    let file = writer.finish().unwrap();
    assert_eq!(file.len(), 8 + 56 + 1);
    assert_eq!(
        &file[8..64],
        br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   "#
    );
}

#[test]
fn a_layout_that_no_file_can_have_is_refused() {
    let check = |tensors: &[(&str, TensorEntry)], expected: &str| {
        let error = layout(tensors).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let byte = || entry("U8", &[1], 1);
    check(
        &[("a", byte()), ("a", byte())],
        "the tensor `a` is listed twice",
    );
    check(
        &[("__metadata__", byte())],
        "a tensor cannot be called `__metadata__`, which is where a file keeps its metadata; rename it",
    );
    check(&[("a", entry("Q8_0", &[1], 1))], "the unknown type `Q8_0`");
    check(
        &[("a", entry("F32", &[usize::MAX, 2], 1))],
        "a shape of more bytes than a file can hold",
    );
    check(
        &[("a", entry("F32", &[2], 4))],
        "has 4 bytes, but F32 [2] takes 64 bits",
    );
}

#[test]
fn tensors_are_written_whole_and_in_order() {
    let tensors = [("a", entry("U8", &[2], 2)), ("b", entry("U8", &[1], 1))];
    let check = |written: &[(&str, &[u8])], expected: &str| {
        let mut writer = SafetensorsWriter::begin(layout(&tensors).unwrap(), Vec::new()).unwrap();
        let results = written
            .iter()
            .map(|(name, bytes)| writer.tensor(name, bytes));
        let failed = results.collect::<Result<Vec<_>, _>>().err();
        let error = failed.unwrap_or_else(|| writer.finish().unwrap_err());
        assert_eq!(error.to_string(), format!("`out.safetensors`: {expected}"));
    };
    check(
        &[("b", &[1])],
        "the tensor `b` is written, but `a` comes next; write the tensors in the order of the layout",
    );
    check(
        &[("a", &[1, 2]), ("b", &[3]), ("c", &[4])],
        "the tensor `c` is written, but nothing is left to write; write the tensors in the order of the layout",
    );
    check(
        &[("a", &[1])],
        "the buffer for the tensor `a` has 1 bytes, expected 2; pass one of the tensor's size",
    );
    check(
        &[],
        "2 tensors are not written yet, the first is `a`; write them before `finish`",
    );
}

/// A disk with room for so many bytes.
#[derive(Debug)]
struct Full(usize);

impl io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.0.checked_sub(bytes.len()) else {
            return Err(io::ErrorKind::StorageFull.into());
        };
        self.0 = left;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told() {
    let expected = "`out.safetensors` cannot be written; check the free space and the permissions: no storage space";
    let layout = layout(&[("a", entry("U8", &[1], 1))]).unwrap();
    let begun = SafetensorsWriter::begin(layout.clone(), Full(10));
    assert_eq!(chain(&begun.unwrap_err()), expected);
    let mut writer = SafetensorsWriter::begin(layout, Full(64)).unwrap();
    assert_eq!(chain(&writer.tensor("a", &[1]).unwrap_err()), expected);
}

#[test]
fn a_header_that_readers_refuse_is_not_written() {
    let metadata = BTreeMap::from([("note".into(), "x".repeat(100_000_000))]);
    let layout = SafetensorsLayout::new("out.safetensors", [], metadata).unwrap();
    let error = SafetensorsWriter::begin(layout, Vec::new())
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "`out.safetensors`: the header would have 100000032 bytes, but readers take at most 100000000; write \
         fewer tensors or less metadata"
    );
}
