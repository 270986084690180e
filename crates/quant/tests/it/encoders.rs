//! What is written in a format: how far it is from the values it was made of, and that its tensors are those that are
//! announced.

use overglaze_quant::{QuantizedTensor, StoredContent, encoders_by_name, kernels::minifloat};

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

/// What the peers' own quantizers leave on values of a bell curve, a little rounded up (gguf-py 0.19 and ggml, bitsandbytes
/// 0.50 with blocks of 64, sdnq 0.2.8, `PyTorch`'s cast for `fp8`; `cargo xtask peers`).
const BOUNDS: [(&str, f64); 17] = [
    ("fp4", 0.1216),
    ("fp8", 0.0265),
    ("iq4_nl", 0.0762),
    ("llm_int8", 0.0079),
    ("nf4", 0.0919),
    ("q2_k", 0.298),
    ("q3_k", 0.151),
    ("q4_0", 0.0865),
    ("q4_1", 0.0783),
    ("q4_k", 0.0715),
    ("q5_0", 0.0429),
    ("q5_1", 0.0382),
    ("q5_k", 0.0362),
    ("q6_k", 0.0178),
    ("q8_0", 0.0054),
    ("sdnq_int8", 0.008),
    ("sdnq_uint4", 0.0894),
];

#[test]
fn every_written_format_is_as_near_as_its_peer() {
    let shape = [32, 1024];
    let values = bell(shape[0] * shape[1]);
    let encoders = encoders_by_name();
    assert_eq!(encoders.len(), BOUNDS.len());
    for encoder in encoders {
        let parts = encoder.encode(&values, shape);
        let packed = QuantizedTensor::new(encoder.format(), shape, parts).unwrap();
        let mut found = vec![0.0; values.len()];
        packed.decode_rows(0..shape[0], &mut found);
        let error = relative_error(&found, &values);
        let (_, bound) = BOUNDS
            .iter()
            .find(|(name, _)| *name == encoder.encoding())
            .unwrap();
        assert!(error <= *bound, "{}: {error}", encoder.encoding());
        assert!(error >= bound / 4.0, "{}: {error}", encoder.encoding());
    }
}

#[test]
fn zeros_and_single_values_are_written() {
    for encoder in encoders_by_name() {
        let shape = [2, 256];
        for values in [vec![0.0_f32; 512], [vec![0.0; 511], vec![-3.0]].concat()] {
            let largest = values
                .iter()
                .fold(0.0_f32, |max, value| max.max(value.abs()));
            let packed = encoder.encode(&values, shape);
            let packed = QuantizedTensor::new(encoder.format(), shape, packed).unwrap();
            let mut found = vec![1.0; 512];
            packed.decode_rows(0..2, &mut found);
            for (found, expected) in found.iter().zip(&values) {
                // Scales of 4 or 6 bits are rounded, and a table may have no zero, only something near.
                let bound = 0.1 * expected.abs() + 0.01 * largest;
                assert!(
                    (found - expected).abs() <= bound,
                    "{}: {found}",
                    encoder.encoding()
                );
            }
        }
    }
}

#[test]
fn matrices_without_values_are_written() {
    for encoder in encoders_by_name() {
        let mut shapes = vec![[0, 256], [3, 0], [0, 0]];
        shapes.retain(|shape| encoder.takes(shape));
        for shape in shapes {
            let parts = encoder.encode(&[], shape);
            let packed = QuantizedTensor::new(encoder.format(), shape, parts);
            assert_eq!(packed.unwrap().shape(), shape, "{}", encoder.encoding());
        }
    }
}

#[test]
fn the_tensors_are_those_that_were_announced() {
    for encoder in encoders_by_name() {
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

#[test]
fn floats_of_8_bits_are_the_nearest() {
    let numbers = minifloat::F8_E4M3;
    let positive = &numbers[..0x7f];
    for (bits, pair) in (0_u8..).zip(positive.windows(2)) {
        let [low, high] = pair else { unreachable!() };
        let middle = f32::midpoint(*low, *high);
        let even = bits + bits % 2;
        assert_eq!(minifloat::to_f8_e4m3(*low), bits);
        assert_eq!(minifloat::to_f8_e4m3(middle), even, "{middle}");
        assert_eq!(minifloat::to_f8_e4m3(middle.next_down()), bits, "{middle}");
        assert_eq!(
            minifloat::to_f8_e4m3(middle.next_up()),
            bits + 1,
            "{middle}"
        );
        assert_eq!(minifloat::to_f8_e4m3(-low), bits | 0x80, "{low}");
    }
    assert_eq!(minifloat::to_f8_e4m3(448.0), 0x7e);
    assert_eq!(minifloat::to_f8_e4m3(f32::INFINITY), 0x7e);
    assert!(numbers[usize::from(minifloat::to_f8_e4m3(f32::NAN))].is_nan());
}
