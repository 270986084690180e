//! Cutting patches whose kind does not cut itself.

use burn::tensor::FloatDType;
use overglaze_patches::{LayerShape, slice_rows};

use crate::fixtures::{
    assert_close, delta, delta_bias, device, load, low_rank, matrix, refusal, sidecar, wave,
};

#[test]
fn the_residual_is_cut() {
    let full = load(&[("test_full", wave(&[9, 5], 0))]).expect("a patch");
    let whole = matrix(wave(&[9, 5], 0));
    let rows = slice_rows(&full, 3..7);
    assert_close(
        delta(rows.as_ref(), [4, 5]),
        whole.clone().slice([3..7, 0..5]),
        0.0,
    );
    let again = slice_rows(&rows, 1..3);
    assert_close(
        delta(again.as_ref(), [2, 5]),
        whole.clone().slice([4..6, 0..5]),
        0.0,
    );
    let copy = again.to_device(&device(), FloatDType::F32);
    assert_close(delta(copy.as_ref(), [2, 5]), whole.slice([4..6, 0..5]), 0.0);
    assert_eq!(rows.num_bytes(), full.num_bytes());
    assert!(delta_bias(rows.as_ref(), &LayerShape::linear(4, 5)).is_none());
    assert!(sidecar(rows.as_ref(), matrix(wave(&[2, 5], 1))).is_none());
}

#[test]
fn rows_outside_do_not_fit() {
    let full = load(&[("test_full", wave(&[9, 5], 0))]).expect("a patch");
    let expected = "the test-full patch is for a weight of shape [9, 5], the layer has [10, 5]";
    assert_eq!(
        refusal(slice_rows(&full, 7..10).as_ref(), &LayerShape::linear(3, 5)),
        expected
    );
    let expected = "the test-full patch is for a weight of shape [9, 5], the layer has [7, 6]";
    assert_eq!(
        refusal(slice_rows(&full, 3..7).as_ref(), &LayerShape::linear(4, 6)),
        expected
    );
    let expected = "the test-full patch is for a weight of shape [4, 5], the layer has [5, 5]";
    assert_eq!(
        refusal(slice_rows(&full, 3..7).as_ref(), &LayerShape::linear(5, 5)),
        expected
    );
    let expected = "the lora patch is for a weight of shape [6, 5], the layer has [7, 5]";
    assert_eq!(
        refusal(
            slice_rows(&low_rank([6, 5], 2, 1), 5..7).as_ref(),
            &LayerShape::linear(2, 5)
        ),
        expected
    );
}

#[test]
fn a_patch_that_reads_the_base_is_refused() {
    let double = load(&[("test_double", wave(&[1], 0))]).expect("a patch");
    let expected = "a test-double patch reads the whole fused weight and cannot be cut to its rows 3..7; \
                    mount it on a checkpoint that keeps the weight fused";
    assert_eq!(
        refusal(
            slice_rows(&double, 3..7).as_ref(),
            &LayerShape::linear(4, 5)
        ),
        expected
    );
}
