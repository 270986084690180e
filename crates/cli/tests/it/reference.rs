//! What `PyTorch` computed for the demo.

use std::path::{Path, PathBuf};

use overglaze_cli::Latents;
use overglaze_stream::{MemorySource, WeightSource};

/// Agreement in f32 after 20 Euler steps: 1e-4 absolute, as measured between implementations that add up in
/// another order.
pub(crate) const TOLERANCE: f32 = 1e-4;

/// The file of expectations.
pub(crate) fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/demo-expected.safetensors")
}

/// The values of one of its tensors.
pub(crate) fn values(name: &str) -> Vec<f32> {
    const FILE: &[u8] = include_bytes!("../data/demo-expected.safetensors");
    let source = MemorySource::from_safetensors("expected", bytes::Bytes::from_static(FILE));
    let bytes = source
        .expect("the file is whole")
        .read(name)
        .expect("the tensor is there");
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// One of its tensors as image tokens of ten prompts.
pub(crate) fn latents(name: &str) -> Latents {
    Latents::new(values(name), [10, 64, 16])
}

/// Asserts agreement, and that there is something to agree with.
pub(crate) fn assert_close(found: &Latents, name: &str) {
    assert_agrees(found.values(), &values(name), name);
}

fn assert_agrees(found: &[f32], expected: &[f32], name: &str) {
    let largest = expected
        .iter()
        .fold(0.0_f32, |largest, value| largest.max(value.abs()));
    assert!(largest > 0.5, "{name} is not all zero");
    let worst = worst(found, expected);
    assert!(worst <= TOLERANCE, "{name}: off by {worst}");
}

/// The largest absolute difference; all values must be finite, for `max` passes over a NaN.
pub(crate) fn worst(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let not_finite = found
        .iter()
        .chain(expected)
        .find(|value| !value.is_finite());
    assert_eq!(not_finite, None, "every value is a number");
    found
        .iter()
        .zip(expected)
        .fold(0.0, |worst, (a, b)| worst.max((a - b).abs()))
}

#[test]
fn what_is_no_number_agrees_with_nothing() {
    let expected = values("out.base");
    assert_agrees(&expected, &expected, "itself");
    for wrong in [f32::NAN, f32::INFINITY, 2.0 * TOLERANCE] {
        let mut found = expected.clone();
        found[3] += wrong;
        let agreement = std::panic::catch_unwind(|| assert_agrees(&found, &expected, "found"));
        assert!(agreement.is_err(), "off by {wrong}");
    }
}
