//! The low-rank kind: scales, shapes, precision and what it refuses.

use burn::tensor::{DType, FloatDType, TensorData};

use overglaze_patches::LayerShape;

use crate::fixtures::{
    assert_close, cast, delta, delta_bias, delta_on, device, load, low_rank, matrix, message,
    refusal, scalar, sidecar, wave,
};

/// Sums of at most 12 products of numbers below 1, in f32.
const TOLERANCE: f32 = 1e-5;
const SHAPE: [usize; 2] = [6, 5];

fn factors() -> Vec<(&'static str, TensorData)> {
    vec![
        ("lora_up.weight", wave(&[SHAPE[0], 4], 1)),
        ("lora_down.weight", wave(&[4, SHAPE[1]], 2)),
    ]
}

fn with(extra: &[(&'static str, TensorData)]) -> Vec<(&'static str, TensorData)> {
    [factors(), extra.to_vec()].concat()
}

fn check_scale(extra: &[(&'static str, TensorData)], scale: f32) {
    let patch = load(&with(extra)).expect("a patch");
    let product = matrix(wave(&[6, 4], 1)).matmul(matrix(wave(&[4, 5], 2)));
    let expected = product.mul_scalar(scale);
    assert_close(delta(patch.as_ref(), SHAPE), expected.clone(), TOLERANCE);
    let input = matrix(wave(&[3, 5], 3));
    let by_factors = sidecar(patch.as_ref(), input.clone()).expect("thin factors");
    assert_close(by_factors, input.matmul(expected.transpose()), TOLERANCE);
}

#[test]
fn scale_is_alpha_over_rank_else_one() {
    check_scale(&[], 1.0);
    check_scale(&[("alpha", scalar(4.0))], 1.0);
    check_scale(&[("alpha", scalar(2.0))], 0.5);
    check_scale(&[("alpha", TensorData::from([2.0_f32]))], 0.5);
    check_scale(&[("alpha", cast(scalar(2.0), DType::BF16))], 0.5);
    check_scale(&[("alpha", scalar(2.0)), ("scale", scalar(3.0))], 3.0);
    check_scale(&[("scale", scalar(-0.25))], -0.25);
}

#[test]
fn alpha_zero_is_no_change() {
    let patch = load(&with(&[("alpha", scalar(0.0))])).expect("a patch");
    let values: Vec<f32> = delta(patch.as_ref(), SHAPE).into_data().iter().collect();
    assert!(values.iter().all(|value| *value == 0.0));
}

#[test]
fn scales_that_are_no_numbers_are_refused() {
    for (key, value, found) in [
        ("alpha", f32::INFINITY, "`alpha` is inf"),
        ("alpha", f32::NAN, "`alpha` is NaN"),
        ("scale", f32::NEG_INFINITY, "`scale` is -inf"),
    ] {
        let expected = format!("layer `layer`: {found}, expected a finite number");
        assert_eq!(message(load(&with(&[(key, scalar(value))]))), expected);
    }
    let several = load(&with(&[("alpha", wave(&[2], 0))]));
    let expected = "layer `layer`: tensor `alpha` has shape [2], expected one number";
    assert_eq!(message(several), expected);
}

#[test]
fn a_longer_down_is_the_sum_of_its_chunks() {
    let down = wave(&[12, 5], 2);
    let patch = load(&[
        ("lora_up.weight", wave(&[6, 4], 1)),
        ("lora_down.weight", down.clone()),
        ("alpha", scalar(6.0)),
    ]);
    let chunks = matrix(down).reshape([3, 4, 5]).sum_dim(0).reshape([4, 5]);
    let expected = matrix(wave(&[6, 4], 1))
        .matmul(chunks)
        .mul_scalar(6.0 / 12.0);
    assert_close(
        delta(patch.expect("a patch").as_ref(), SHAPE),
        expected,
        TOLERANCE,
    );
}

#[test]
fn other_rank_mismatches_are_refused() {
    for (columns, rows) in [(8, 4), (4, 6), (0, 4)] {
        let patch = load(&[
            ("lora_up.weight", wave(&[6, columns], 1)),
            ("lora_down.weight", wave(&[rows, 5], 2)),
        ]);
        let expected = format!(
            "layer `layer`: `lora_up.weight` has {columns} columns and `lora_down.weight` has {rows} \
             rows, expected as many or a multiple"
        );
        assert_eq!(message(patch), expected);
    }
    let patch = load(&[
        ("lora_up.weight", wave(&[6, 0], 1)),
        ("lora_down.weight", wave(&[0, 5], 2)),
    ]);
    let expected = "layer `layer`: the rank is 0";
    assert_eq!(message(patch), expected);
}

#[test]
fn factors_of_one_by_one_convolutions_are_matrices() {
    let patch = load(&[
        ("lora_up.weight", wave(&[6, 4, 1, 1], 1)),
        ("lora_down.weight", wave(&[4, 5, 1, 1], 2)),
    ])
    .expect("a patch");
    let expected = matrix(wave(&[6, 4], 1)).matmul(matrix(wave(&[4, 5], 2)));
    assert_close(delta(patch.as_ref(), SHAPE), expected, TOLERANCE);
    let wide = load(&[
        ("lora_up.weight", wave(&[6, 4, 3], 1)),
        factors()[1].clone(),
    ]);
    let expected = "layer `layer`: tensor `lora_up.weight` has shape [6, 4, 3], expected 2 dimensions, or more \
         where the others are of size 1";
    assert_eq!(message(wide), expected);
    let flat = load(&[factors()[0].clone(), ("lora_down.weight", wave(&[20], 1))]);
    let expected =
        "layer `layer`: tensor `lora_down.weight` has shape [20], expected 2 or more dimensions";
    assert_eq!(message(flat), expected);
}

/// f16 factors near 1e-4: the product is near 1e-8, which f16 rounds to 0.
#[test]
fn b7_small_half_precision_factors_do_not_vanish() {
    let small = |shape: &[usize], seed| {
        let values = wave(shape, seed)
            .iter::<f32>()
            .map(|value| value * 1e-4)
            .collect();
        cast(TensorData::new::<f32, _>(values, shape), DType::F16)
    };
    let (up, down) = (small(&[6, 4], 1), small(&[4, 5], 2));
    let patch = load(&[
        ("lora_up.weight", up.clone()),
        ("lora_down.weight", down.clone()),
    ]);
    let patch = patch.expect("a patch");
    let expected = matrix(up).matmul(matrix(down)).mul_scalar(1e8);
    for copy in [
        patch.clone(),
        patch.to_device(&device(), FloatDType::F16),
        patch.to_device(&device(), FloatDType::F32),
    ] {
        let found = delta(copy.as_ref(), SHAPE);
        assert_eq!(found.dtype(), DType::F32);
        assert_close(found.mul_scalar(1e8), expected.clone(), TOLERANCE);
        let input = matrix(wave(&[3, 5], 3)).mul_scalar(1e4);
        let by_factors = sidecar(copy.as_ref(), input.clone()).expect("thin factors");
        let product = input.matmul(expected.clone().transpose()).mul_scalar(1e-4);
        assert_close(by_factors.mul_scalar(1e4), product, TOLERANCE);
    }
}

#[test]
fn factors_of_two_dtypes_are_brought_together() {
    let patch = load(&[
        ("lora_up.weight", cast(wave(&[6, 4], 1), DType::F16)),
        ("lora_down.weight", wave(&[4, 5], 2)),
    ])
    .expect("a patch");
    let up = matrix(cast(wave(&[6, 4], 1), DType::F16));
    let expected = up.matmul(matrix(wave(&[4, 5], 2)));
    assert_close(delta(patch.as_ref(), SHAPE), expected, TOLERANCE);
}

#[test]
fn the_loaded_patch_keeps_the_files_dtype() {
    let half = factors()
        .into_iter()
        .map(|(key, data)| (key, cast(data, DType::BF16)));
    let patch = load(&half.collect::<Vec<_>>()).expect("a patch");
    assert_eq!(patch.num_bytes(), 2 * (6 * 4 + 4 * 5));
    let copy = patch.to_device(&device(), FloatDType::F32);
    assert_eq!(copy.num_bytes(), 4 * (6 * 4 + 4 * 5));
    assert_eq!(patch.num_bytes(), 2 * (6 * 4 + 4 * 5));
}

#[test]
fn the_bias_is_scaled_like_the_weight() {
    let bias = ("lora_up.bias", wave(&[6], 4));
    let patch = load(&with(&[bias.clone(), ("alpha", scalar(2.0))])).expect("a patch");
    let expected = matrix(wave(&[1, 6], 4)).mul_scalar(0.5).reshape([6]);
    let layer = LayerShape::linear(6, 5);
    let found = delta_bias(patch.as_ref(), &layer).expect("a bias");
    assert_close(found, expected, TOLERANCE);
    let short = load(&with(&[("lora_up.bias", wave(&[5], 4))]));
    let expected = "layer `layer`: `lora_up.bias` has 5 elements, but `lora_up.weight` has 6 rows";
    assert_eq!(message(short), expected);
}

#[test]
fn another_shape_does_not_fit() {
    let patch = low_rank([6, 5], 4, 1);
    let expected = "the lora patch is for a weight of shape [6, 5], the layer has [5, 6]";
    assert_eq!(refusal(patch.as_ref(), &LayerShape::linear(5, 6)), expected);
}

#[test]
fn rows_share_down() {
    let patch = load(&with(&[("lora_up.bias", wave(&[6], 4))])).expect("a patch");
    let rows = patch
        .slice_rows(2..5)
        .expect("a low-rank patch cuts itself");
    let expected = delta(patch.as_ref(), SHAPE).slice([2..5, 0..5]);
    assert_close(delta(rows.as_ref(), [3, 5]), expected, TOLERANCE);
    assert_eq!(rows.num_bytes(), 4 * (3 * 4 + 4 * 5 + 3));
    assert!(patch.slice_rows(2..7).is_none());
    assert!(patch.slice_rows(2..2).is_none());
}

/// Sizes beside a 0 may have any product.
#[test]
fn shapes_that_overflow_are_refused() {
    let huge = 1_usize << 40;
    let none = |shape: &[usize]| TensorData::new(Vec::<f32>::new(), shape);
    let patch = load(&[
        ("lora_up.weight", wave(&[6, 4], 1)),
        ("lora_down.weight", none(&[0, huge, huge])),
    ]);
    let expected =
        format!("layer `layer`: `lora_down.weight` has shape [0, {huge}, {huge}], which overflows");
    assert_eq!(message(patch), expected);
    let size = i64::try_from(huge).expect("2^40 fits");
    let patch = load(&[
        ("lora_up.weight", none(&[0, 4])),
        ("lora_down.weight", wave(&[4, 5], 2)),
        ("bias_indices", TensorData::new(Vec::<i64>::new(), [3, 0])),
        ("bias_values", none(&[0])),
        ("bias_size", TensorData::from([0, size, size])),
    ]);
    let expected = "layer `layer`: the patch is for a weight of shape [0, 5], which has no values";
    assert_eq!(message(patch), expected);
}

#[test]
fn factors_without_elements_are_refused() {
    let none = |shape: &[usize]| TensorData::new(Vec::<f32>::new(), shape);
    let up = |rows: usize| ("lora_up.weight", wave(&[rows, 4], 1));
    for (tensors, shape) in [
        (vec![up(6), ("lora_down.weight", none(&[4, 0]))], [6, 0]),
        (vec![up(6), ("lora_down.weight", none(&[8, 3, 0]))], [6, 0]),
        (vec![up(0), factors()[1].clone()], [0, 5]),
    ] {
        let expected = format!(
            "layer `layer`: the patch is for a weight of shape {shape:?}, which has no values"
        );
        assert_eq!(message(load(&tensors)), expected);
    }
    let huge = 1 << 40;
    let found = message(load(&with(&[("alpha", none(&[0, huge, huge]))])));
    assert!(found.ends_with("expected one number"), "{found}");
}

#[test]
fn a_copy_is_in_the_dtype_or_wider() {
    let bias = ("lora_up.bias", wave(&[6], 4));
    let patch = load(&with(&[bias])).expect("a patch");
    let exact = delta(patch.as_ref(), SHAPE);
    let input = matrix(wave(&[3, 5], 3));
    for dtype in [FloatDType::F16, FloatDType::BF16] {
        let copy = patch.to_device(&device(), dtype);
        // The bias stays in f32.
        assert_eq!(copy.num_bytes(), 2 * (6 * 4 + 4 * 5) + 4 * 6);
        let rounded = delta(copy.as_ref(), SHAPE);
        assert_eq!(rounded.dtype(), DType::F32);
        // bf16 has 8 bits: each of 4 products of numbers below 1 is off by up to 2 · 2^-9.
        assert_close(rounded.clone(), exact.clone(), 0.02);
        // What the factors were rounded to is all that is lost: the sidecar is the residual's product.
        let product = input.clone().matmul(rounded.transpose());
        let by_factors = sidecar(copy.as_ref(), input.clone()).expect("thin factors");
        assert_close(by_factors, product, TOLERANCE);
        let biases = [copy.as_ref(), patch.as_ref()]
            .map(|patch| delta_bias(patch, &LayerShape::linear(6, 5)).expect("a bias"));
        let [copied, original] = biases;
        assert_close(copied, original, 0.0);
    }
}

#[test]
fn integers_are_no_factors() {
    let up = TensorData::new(vec![1_i64; 24], [6, 4]);
    let patch = load(&[("lora_up.weight", up), factors()[1].clone()]);
    let expected = "layer `layer`: tensor `lora_up.weight` has dtype i64, expected f16, bf16, f32 or f64; save the \
         adapter with floating-point values";
    assert_eq!(message(patch), expected);
}

/// A control adapter states the shape that the base is to be filled up to.
#[test]
fn reshape_weight_widens_a_layer_with_an_open_input() {
    let reshape = ("reshape_weight", TensorData::from([6_i64, 5]));
    let patch = load(&with(&[reshape])).expect("a patch");
    let open = LayerShape::linear(6, 3).with_open_input();
    assert_close(
        delta_on(patch.as_ref(), &open),
        delta(patch.as_ref(), SHAPE),
        0.0,
    );
    assert_eq!(patch.d_input(&open), 5);
    assert_eq!(patch.d_input(&LayerShape::linear(6, 5)), 5);
    let expected = "the lora patch is for a weight of shape [6, 5], the layer has [6, 3]";
    assert_eq!(refusal(patch.as_ref(), &LayerShape::linear(6, 3)), expected);
    let expected = "the lora patch is for a weight of shape [6, 5], the layer has [7, 3]";
    let other = LayerShape::linear(7, 3).with_open_input();
    assert_eq!(refusal(patch.as_ref(), &other), expected);
}

#[test]
fn a_layer_is_widened_a_few_times_at_most() {
    let open = LayerShape::linear(6, 3).with_open_input();
    low_rank([6, 48], 2, 1).check(&open).expect("16 times");
    let expected = "the lora patch is for a weight of shape [6, 49], the layer has [6, 3]";
    assert_eq!(refusal(&*low_rank([6, 49], 2, 1), &open), expected);
}
