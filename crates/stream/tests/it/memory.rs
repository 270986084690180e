//! Tensors in memory are checked as those of a file are, and handed out without a copy.

use bytes::Bytes;
use overglaze_stream::{MemorySource, StreamError, WeightSource};

use crate::written::safetensors;

#[test]
fn an_embedded_file_is_viewed_in_place() {
    let file = Bytes::from(safetensors(&[("a", &[1, 2, 3]), ("b", &[4])]));
    let source = MemorySource::from_safetensors("embedded", file.clone()).unwrap();
    let a = source.read("a").unwrap();
    assert_eq!(&a[..], [1, 2, 3]);
    assert!(file.as_ptr_range().contains(&a.as_ptr()));
    assert_eq!(source.metadata()["format"], "pt");
    assert_eq!(source.label(), "embedded");
    assert_eq!(source.entries()["a"].tag, "U8");
    assert_eq!(source.entries()["a"].shape, [3]);
    assert_eq!(source.entries()["a"].file, None);
}

#[test]
fn inserted_tensors_are_checked() {
    let mut source = MemorySource::new("memory");
    let four = Bytes::from_static(&[1, 2, 3, 4]);
    source.insert("a", "F32", [1], four.clone()).unwrap();
    // The source does not know every format's size.
    source.insert("q", "Q8_0", [32], four.clone()).unwrap();
    let again = source.insert("a", "F32", [1], four.clone()).unwrap_err();
    assert!(
        matches!(again, StreamError::DuplicateTensor { .. }),
        "{again}"
    );
    let short = source.insert("b", "F32", [2], four.clone()).unwrap_err();
    assert!(matches!(short, StreamError::TensorSize { .. }), "{short}");
    let huge = source
        .insert("c", "F32", [usize::MAX, 2], four)
        .unwrap_err();
    assert!(matches!(huge, StreamError::ShapeOverflow { .. }), "{huge}");
}

#[test]
fn reading_into_a_buffer_needs_its_exact_size() {
    let mut source = MemorySource::new("memory");
    source
        .insert("a", "U8", [3], Bytes::from_static(&[1, 2, 3]))
        .unwrap();
    let mut buffer = [0; 3];
    source.read_into("a", &mut buffer).unwrap();
    assert_eq!(buffer, [1, 2, 3]);
    let error = source.read_into("a", &mut [0; 4]).unwrap_err();
    let expected = "`memory`: the buffer for the tensor `a` has 4 bytes, expected 3; pass one of the \
                    tensor's size";
    assert_eq!(error.to_string(), expected);
    let error = source.read("z").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`memory` has no tensor `z`; the source's entries list the names it has"
    );
}
