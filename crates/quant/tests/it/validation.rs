//! What is refused, and with which words.

use bytes::Bytes;
use overglaze_quant::{
    Part, Parts, QuantError, QuantizedTensor, format_by_name, format_by_tag, formats_by_name,
};

fn check(error: &QuantError, expected: &str) {
    assert_eq!(error.to_string(), expected);
}

fn refused(name: &str, shape: [usize; 2], parts: Parts) -> QuantError {
    QuantizedTensor::new(format_by_name(name).unwrap(), shape, parts).unwrap_err()
}

#[test]
fn unknown_names_and_tags() {
    let known: Vec<_> = formats_by_name()
        .iter()
        .map(|format| format.name())
        .collect();
    assert!(known.contains(&"q8_0"));
    for error in [
        format_by_name("q9").unwrap_err(),
        format_by_tag("q9").unwrap_err(),
    ] {
        check(
            &error,
            &format!("no weight format is called `q9`; known formats: {known:?}"),
        );
    }
}

#[test]
fn values_that_are_not_whole_blocks() {
    check(
        &refused("q8_0", [2, 33], Parts::values(Bytes::new())),
        "a q8_0 weight of shape [2, 33] is not a whole number of its blocks of 32 values; check its shape, or \
         choose another format",
    );
}

#[test]
fn parts_of_the_wrong_size() {
    for (name, expected) in [("f32", 256), ("f16", 128), ("bf16", 128), ("q8_0", 68)] {
        check(
            &refused(name, [2, 32], Parts::values(vec![0; 67].into())),
            &format!(
                "the part `values` of a {name} weight has 67 bytes, expected {expected}; check its shape \
                 and format"
            ),
        );
    }
}

#[test]
fn parts_that_are_missing() {
    let scales = Part {
        name: "scales",
        tag: "F32".into(),
        shape: vec![17],
        bytes: vec![0; 68].into(),
    };
    let parts = Parts::new(vec![scales]);
    assert_eq!((parts.num_bytes(), parts.iter().count()), (68, 1));
    check(
        &refused("q8_0", [2, 32], parts),
        "a q8_0 weight has no part `values`; add it, or choose the format that its parts belong to",
    );
}

#[test]
fn shapes_that_overflow() {
    for (name, shape) in [
        ("q8_0", [usize::MAX, 32]),
        ("f32", [1 << 62, 4]),
        ("bf16", [1 << 62, 1]),
    ] {
        check(
            &refused(name, shape, Parts::values(Bytes::new())),
            &format!(
                "a {name} weight of shape {shape:?} is larger than memory can be; check its shape"
            ),
        );
    }
}
