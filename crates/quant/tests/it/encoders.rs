//! What is written in a format: how far it is from the values it was made of, and that its tensors are those that are
//! announced.

use overglaze_quant::{QuantizedTensor, StoredContent, formats_by_name};

/// Values of a bell curve: sums of twelve even ones.
fn bell(len: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9u32;
    let mut even = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 24) as f32
    };
    (0..len)
        .map(|_| (0..12).map(|_| even()).sum::<f32>() - 6.0)
        .collect()
}

/// Root mean square of the error over that of the values.
fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    let square = |value: f32| f64::from(value) * f64::from(value);
    let error: f64 = found.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    (error / expected.iter().map(|value| square(*value)).sum::<f64>()).sqrt()
}

/// What the peers' own quantizers leave on values of a bell curve, where they are Python packages (gguf-py 0.19,
/// bitsandbytes 0.50, blocks of 64); for the others, which only ggml writes, a little above what is measured here.
const BOUNDS: [(&str, f64); 14] = [
    ("fp4", 0.1216),
    ("iq4_nl", 0.075),
    ("llm_int8", 0.0079),
    ("nf4", 0.0919),
    ("q2_k", 0.275),
    ("q3_k", 0.145),
    ("q4_0", 0.0865),
    ("q4_1", 0.0783),
    ("q4_k", 0.072),
    ("q5_0", 0.0429),
    ("q5_1", 0.0382),
    ("q5_k", 0.0362),
    ("q6_k", 0.0175),
    ("q8_0", 0.0054),
];

#[test]
fn every_written_format_is_as_near_as_its_peer() {
    let shape = [32, 1024];
    let values = bell(shape[0] * shape[1]);
    let formats = formats_by_name().into_iter();
    let written: Vec<_> = formats
        .filter(|format| format.encoder().is_some())
        .collect();
    assert_eq!(written.len(), BOUNDS.len());
    for format in written {
        let encoder = format.encoder().unwrap();
        let packed = QuantizedTensor::new(format, shape, encoder.encode(&values, shape)).unwrap();
        let mut found = vec![0.0; values.len()];
        packed.decode_rows(0..shape[0], &mut found);
        let error = relative_error(&found, &values);
        let (_, bound) = BOUNDS
            .iter()
            .find(|(name, _)| *name == format.name())
            .unwrap();
        assert!(error <= *bound, "{}: {error}", format.name());
        assert!(error >= bound / 4.0, "{}: {error}", format.name());
    }
}

#[test]
fn zeros_and_single_values_are_written() {
    for format in formats_by_name() {
        let Some(encoder) = format.encoder() else {
            continue;
        };
        let shape = [2, 256];
        for values in [vec![0.0_f32; 512], [vec![0.0; 511], vec![-3.0]].concat()] {
            let largest = values
                .iter()
                .fold(0.0_f32, |max, value| max.max(value.abs()));
            let packed = encoder.encode(&values, shape);
            let packed = QuantizedTensor::new(format, shape, packed).unwrap();
            let mut found = vec![1.0; 512];
            packed.decode_rows(0..2, &mut found);
            for (found, expected) in found.iter().zip(&values) {
                // Scales of 4 or 6 bits are rounded, and a table may have no zero, only something near.
                let bound = 0.1 * expected.abs() + 0.01 * largest;
                assert!(
                    (found - expected).abs() <= bound,
                    "{}: {found}",
                    format.name()
                );
            }
        }
    }
}

#[test]
fn the_tensors_are_those_that_were_announced() {
    for format in formats_by_name() {
        let Some(encoder) = format.encoder() else {
            continue;
        };
        let shape = [3, 512];
        let parts = encoder.encode(&bell(shape[0] * shape[1]), shape);
        let tensors = encoder.stored_as("fc.weight", &shape);
        assert!(tensors.iter().any(|tensor| tensor.name == "fc.weight"));
        for tensor in tensors {
            let bytes = match &tensor.content {
                StoredContent::Part(part) => parts.bytes(part),
                StoredContent::Bytes(bytes) => bytes,
            };
            assert_eq!(bytes.len(), tensor.num_bytes, "{}", tensor.name);
        }
    }
}
