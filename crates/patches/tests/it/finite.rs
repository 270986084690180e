//! Factors and biases that hold NaN or infinity.

use burn::tensor::{DType, TensorData};

use crate::fixtures::{cast, load, message, wave};

/// A low-rank layer with `value` twice in the tensor `bad_key`, the first time at element 3.
fn layer_with(bad_key: &str, value: f32, dtype: DType) -> [(&'static str, TensorData); 3] {
    [
        ("lora_up.weight", wave(&[6, 4], 1)),
        ("lora_down.weight", wave(&[4, 5], 2)),
        ("lora_up.bias", wave(&[6], 3)),
    ]
    .map(|(key, data)| {
        let mut values: Vec<f32> = data.iter().collect();
        if key == bad_key {
            (values[3], values[5]) = (value, value);
        }
        let data = TensorData::new(values, data.shape().to_vec());
        (key, cast(data, dtype))
    })
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for key in ["lora_up.weight", "lora_down.weight", "lora_up.bias"] {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let expected = format!(
                    "layer `layer`: tensor `{key}` has {value} at element 3, expected finite numbers; the \
                     file is damaged or its training diverged, use another copy or an earlier one"
                );
                assert_eq!(
                    message(load(&layer_with(key, value, dtype))),
                    expected,
                    "{dtype:?}"
                );
            }
            load(&layer_with(key, 0.0, dtype)).expect("finite numbers");
        }
    }
}

#[test]
fn the_largest_numbers_are_finite() {
    for (dtype, largest) in [
        (DType::F16, 65504.0),
        (DType::BF16, 3.0e38),
        (DType::F32, f64::from(f32::MAX)),
        (DType::F64, f64::from(f32::MAX)),
    ] {
        let up = TensorData::new(vec![largest, -largest], [2, 1]).convert_dtype(dtype);
        let tensors = [
            ("lora_up.weight", up),
            ("lora_down.weight", wave(&[1, 3], 1)),
        ];
        load(&tensors).expect("finite numbers");
    }
    let up = TensorData::new(vec![0.5_f64, 1e300], [2, 1]);
    let tensors = [
        ("lora_up.weight", up),
        ("lora_down.weight", wave(&[1, 3], 1)),
    ];
    assert!(
        message(load(&tensors)).contains("`lora_up.weight` has 1000"),
        "it overflows f32"
    );
}
