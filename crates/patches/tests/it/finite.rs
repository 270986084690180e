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

/// That factors of `value` everywhere are refused, and what their product may reach.
fn check_overflow(shapes: &[(&'static str, &[usize])], value: f32, scale: &str, reaches: &str) {
    let with = |value: f32| -> Vec<_> {
        let of = |(key, shape): &(&'static str, &[usize])| {
            let values = vec![value; shape.iter().product()];
            (*key, TensorData::new(values, *shape))
        };
        shapes.iter().map(of).collect()
    };
    let expected = format!(
        "layer `layer`: the product of the factors, with the scale {scale}, may reach {reaches}, expected at most \
         3.4e38; the file is damaged, use another copy"
    );
    assert_eq!(message(load(&with(value))), expected);
    load(&with(100.0)).expect("factors that no trainer writes, but that can be computed with");
}

#[test]
fn low_rank_factors_whose_product_overflows_are_refused() {
    let [up, down] = ["lora_up.weight", "lora_down.weight"];
    check_overflow(&[(up, &[6, 4]), (down, &[4, 5])], 1e30, "1e0", "4e60");
    check_overflow(&[(up, &[6, 4]), (down, &[4, 5])], 1e19, "1e0", "4e38");
    let mid = ("lora_mid.weight", &[4, 2, 3][..]);
    check_overflow(&[(up, &[6, 4]), mid, (down, &[2, 5])], 1e13, "1e0", "8e39");
    check_overflow(
        &[(up, &[6, 1]), (down, &[1, 5]), ("alpha", &[1])],
        1e18,
        "1e18",
        "1e54",
    );
    check_overflow(
        &[("lora_embedding_A", &[2, 9]), ("lora_embedding_B", &[4, 2])],
        1e20,
        "1e0",
        "2e40",
    );
}

#[test]
fn factors_of_products_that_overflow_are_refused() {
    let [a, b] = [[6, 3], [3, 5]];
    let loha = [
        ("hada_w1_a", &a[..]),
        ("hada_w1_b", &b[..]),
        ("hada_w2_a", &a[..]),
        ("hada_w2_b", &b[..]),
    ];
    check_overflow(&loha, 1e10, "1e0", "9e40");
    check_overflow(
        &[("lokr_w1", &[2, 2]), ("lokr_w2", &[3, 5])],
        1e20,
        "1e0",
        "1e40",
    );
    check_overflow(
        &[
            ("lokr_w1", &[2, 2]),
            ("lokr_w2_a", &a[..]),
            ("lokr_w2_b", &b[..]),
        ],
        1e13,
        "1e0",
        "3e39",
    );
    let [a, b] = [[5, 2], [2, 5]];
    let glora = [
        ("a1.weight", &a[..]),
        ("a2.weight", &b[..]),
        ("b1.weight", &a[..]),
        ("b2.weight", &b[..]),
    ];
    check_overflow(&glora, 1e20, "1e0", "2e40");
}
