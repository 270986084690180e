//! Writing GGUF files: what is written reads back, and what cannot be a file is refused.

use std::io;

use overglaze_stream::{
    GgufArray, GgufLayout, GgufTensor, GgufType, GgufValue, GgufWriter, StreamError, WeightSource,
    source::GgufSource,
};

use crate::{gguf_bytes::block_types, written::chain};

fn tensor(name: &str, shape: &[usize], type_id: u32, num_bytes: u64) -> GgufTensor {
    GgufTensor {
        name: name.into(),
        shape: shape.into(),
        type_id,
        num_bytes,
    }
}

/// Packed, plain, of odd sizes, one without elements, one scalar and one of four dimensions.
fn mixed() -> Vec<GgufTensor> {
    vec![
        tensor("z.weight", &[2, 64], 2, 72),
        tensor("a.weight", &[3, 1], 30, 6),
        tensor("empty", &[0, 4], 0, 0),
        tensor("scale", &[], 0, 4),
        tensor("kernel", &[2, 1, 3, 1], 24, 6),
    ]
}

fn array(element_type: GgufType, elements: &[GgufValue]) -> GgufValue {
    GgufValue::Array(GgufArray::new(element_type, elements).unwrap())
}

/// A value of every type.
fn values(alignment: u32) -> Vec<(String, GgufValue)> {
    let inner = [
        array(GgufType::Text, &["a".into(), "".into()]),
        array(GgufType::U16, &[]),
    ];
    let values = [
        ("general.architecture", "flux".into()),
        ("general.alignment", GgufValue::U32(alignment)),
        ("u8", GgufValue::U8(200)),
        ("i8", GgufValue::I8(-100)),
        ("u16", GgufValue::U16(60_000)),
        ("i16", GgufValue::I16(-30_000)),
        ("i32", GgufValue::I32(i32::MIN)),
        ("f32", GgufValue::F32(1.5)),
        ("true", GgufValue::Bool(true)),
        ("text", "\"quoted\"\n\u{65e5}\u{672c}".into()),
        ("u64", GgufValue::U64(u64::MAX)),
        ("i64", GgufValue::I64(i64::MIN)),
        ("f64", GgufValue::F64(0.1)),
        (
            "bools",
            array(
                GgufType::Bool,
                &[GgufValue::Bool(true), GgufValue::Bool(false)],
            ),
        ),
        ("nested", array(GgufType::Array, &inner)),
    ];
    values.map(|(key, value)| (key.into(), value)).into()
}

/// The bytes of the tensor at `index`.
fn content(index: usize, tensor: &GgufTensor) -> Vec<u8> {
    let first = u8::try_from(index).unwrap() * 40;
    (0..u8::try_from(tensor.num_bytes).unwrap())
        .map(|offset| first + offset % 40 + 1)
        .collect()
}

fn written(alignment: u32) -> Vec<u8> {
    let layout = GgufLayout::new("out.gguf", mixed(), values(alignment)).unwrap();
    assert_eq!(layout.data_bytes(), 88);
    let mut writer = GgufWriter::begin(layout, Vec::new()).unwrap();
    for (index, tensor) in mixed().iter().enumerate() {
        writer
            .tensor(&tensor.name, &content(index, tensor))
            .unwrap();
    }
    assert_eq!(writer.layout().label(), "out.gguf");
    writer.finish().unwrap()
}

#[test]
fn what_is_written_reads_back() {
    for alignment in [8, 32, 64, 4096] {
        let file = written(alignment);
        assert_eq!(
            written(alignment),
            file,
            "the same tensors make the same file"
        );
        assert_eq!(file.len() % alignment as usize, 0);
        let source = GgufSource::from_bytes("read", file.into(), &block_types).unwrap();
        assert_eq!(*source.values(), values(alignment).into_iter().collect());
        assert_eq!(source.entries().len(), mixed().len());
        for (index, tensor) in mixed().iter().enumerate() {
            let entry = &source.entries()[&tensor.name];
            assert_eq!(entry.shape, tensor.shape);
            assert_eq!(entry.num_bytes, tensor.num_bytes);
            assert_eq!(source.read(&tensor.name).unwrap(), content(index, tensor));
        }
    }
}

#[test]
fn without_metadata_there_are_none() {
    let layout = GgufLayout::new("out.gguf", [tensor("a", &[2], 24, 2)], []).unwrap();
    let mut writer = GgufWriter::begin(layout, Vec::new()).unwrap();
    writer.tensor("a", &[7, 8]).unwrap();
    let file = writer.finish().unwrap();
    assert_eq!(file.len(), 64 + 32);
    assert_eq!(
        file[..24],
        *b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    );
    assert_eq!(file[64..67], [7, 8, 0]);
}

#[test]
fn a_layout_that_no_file_can_have_is_refused() {
    let check = |tensors: &[GgufTensor], values: &[(&str, GgufValue)], expected: &str| {
        let values = values
            .iter()
            .map(|(key, value)| ((*key).into(), value.clone()));
        let error = GgufLayout::new("out.gguf", tensors.to_vec(), values).unwrap_err();
        assert_eq!(error.to_string(), format!("`out.gguf`: {expected}"));
    };
    let byte = tensor("a", &[1], 24, 1);
    check(
        &[byte.clone(), byte],
        &[],
        "the tensor `a` is listed twice; write the file again with unique names",
    );
    check(
        &[],
        &[("k", GgufValue::U8(1)), ("k", GgufValue::U8(1))],
        "the metadata key `k` is listed twice; write the file again with unique keys",
    );
    check(
        &[],
        &[("general.alignment", GgufValue::U32(12))],
        "the key `general.alignment` is the U32 12, expected a 32-bit unsigned power of two, 8 or more; write the file \
         again",
    );
    check(
        &[tensor("a", &[1; 5], 24, 1)],
        &[],
        "the tensor `a` has 5 dimensions, expected at most 4; store it with fewer and note the original shape beside it",
    );
    check(
        &[
            tensor("a", &[1], 24, u64::MAX - 100),
            tensor("b", &[1], 24, 70),
        ],
        &[],
        "with the tensor `b` it would have more bytes than a file can hold; check the sizes",
    );
}

#[test]
fn tensors_are_written_whole_and_in_order() {
    let tensors = [tensor("a", &[2], 24, 2), tensor("b", &[1], 24, 1)];
    let check = |written: &[(&str, &[u8])], expected: &str| {
        let layout = GgufLayout::new("out.gguf", tensors.clone(), []).unwrap();
        let mut writer = GgufWriter::begin(layout, Vec::new()).unwrap();
        let results = written
            .iter()
            .map(|(name, bytes)| writer.tensor(name, bytes));
        let failed = results.collect::<Result<Vec<_>, _>>().err();
        let error = failed.unwrap_or_else(|| writer.finish().unwrap_err());
        assert_eq!(error.to_string(), format!("`out.gguf`: {expected}"));
    };
    check(
        &[("b", &[1])],
        "the tensor `b` is written, but `a` comes next; write the tensors in the order of the layout",
    );
    check(
        &[("a", &[1])],
        "the buffer for the tensor `a` has 1 bytes, expected 2; pass one of the tensor's size",
    );
    check(
        &[("a", &[1, 2])],
        "1 tensors are not written yet, the first is `b`; write them before `finish`",
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
fn a_full_disk_is_told_and_nothing_follows() -> Result<(), StreamError> {
    let expected =
        "`out.gguf` cannot be written; check the free space and the permissions: no storage space";
    let layout = GgufLayout::new("out.gguf", [tensor("a", &[1], 24, 1)], [])?;
    let begun = GgufWriter::begin(layout.clone(), Full(10));
    assert_eq!(chain(&begun.unwrap_err()), expected);
    // There is room for the byte, not for what aligns the end.
    let mut writer = GgufWriter::begin(layout, Full(64 + 8))?;
    assert_eq!(chain(&writer.tensor("a", &[1]).unwrap_err()), expected);
    let error = writer.tensor("a", &[1]).unwrap_err().to_string();
    assert!(error.contains("an earlier write failed"), "{error}");
    Ok(())
}

#[test]
fn a_header_that_readers_refuse_is_not_written() {
    let note = "x".repeat(100_000_000);
    let values = [("note".to_owned(), note.as_str().into())];
    let layout = GgufLayout::new("out.gguf", [], values).unwrap();
    let error = GgufWriter::begin(layout, Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`out.gguf`: the header would have 100000048 bytes, but readers take at most 100000000; write fewer tensors or \
         less metadata"
    );
}
