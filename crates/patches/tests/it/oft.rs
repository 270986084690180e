//! Rotations of outputs: one factor, butterfly factors, and the old spelling with two meanings.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use overglaze_patches::{BaseLayer, LayerShape, Patch, at_strength, slice_rows};

use crate::fixtures::{assert_close, load, matrix, message, refusal, scalar, wave};

/// Sums of at most 20 products of numbers below 1 in f32, after a solve in f64.
const TOLERANCE: f32 = 2e-5;

fn delta(patch: &dyn Patch, shape: &LayerShape, weight: &Tensor<2>) -> Tensor<2> {
    patch.check(shape).expect("the patch fits");
    let base = BaseLayer {
        shape,
        weight: Some(weight),
        bias: None,
    };
    patch
        .delta_weight(&base)
        .expect("values")
        .expect("a change")
}

fn weight() -> Tensor<2> {
    matrix(wave(&[8, 5], 3))
}

fn layer() -> LayerShape {
    LayerShape::linear(8, 5)
}

/// Columns of the weight keep their length.
fn assert_rotated(patch: &dyn Patch) {
    let rotated = weight() + delta(patch, &layer(), &weight());
    let lengths = |weight: Tensor<2>| weight.powf_scalar(2.0).sum_dim(0);
    assert_close(lengths(rotated.clone()), lengths(weight()), TOLERANCE);
    assert!((rotated - weight()).abs().max().into_scalar::<f32>() > 0.1);
}

#[test]
fn a_rotation_keeps_lengths() {
    for shape in [&[2, 4, 4][..], &[1, 8, 8], &[2, 2, 4, 4], &[3, 4, 2, 2]] {
        assert_rotated(&*load(&[("oft_blocks", wave(shape, 1))]).expect("a patch"));
    }
}

#[test]
fn alpha_limits_the_turn() {
    let turn = |alpha: f32| {
        let tensors = [
            ("oft_blocks", wave(&[2, 4, 4], 1)),
            ("alpha", scalar(alpha)),
        ];
        let patch = load(&tensors).expect("a patch");
        let change = delta(&*patch, &layer(), &weight());
        change.abs().max().into_scalar::<f32>()
    };
    assert!(turn(1e-5) < 1e-3);
    assert!(turn(1e-5) > 0.0);
    // Without a limit, and with one that is not reached.
    assert_eq!(turn(0.0), turn(1e6));
    assert!(turn(0.0) > 0.1);
}

/// LyCORIS's first `oft_diag` is D of `I + D`, a later one the finished rotation.
#[test]
fn the_old_key_has_two_meanings() {
    let small: Vec<f32> = wave(&[2, 4, 4], 1)
        .iter()
        .map(|value: f32| value * 0.1)
        .collect();
    let mut finished = small.clone();
    for block in 0..2 {
        for place in 0..4 {
            finished[block * 16 + place * 5] += 1.0;
        }
    }
    let patches = [small.clone(), finished].map(|values| {
        let data = TensorData::new(values, [2, 4, 4]);
        load(&[("oft_diag", data)]).expect("a patch")
    });
    let [first, second] = patches.map(|patch| delta(&*patch, &layer(), &weight()));
    assert_close(second, first.clone(), TOLERANCE);
    let block = Tensor::<1>::from_floats(&small[..16], &crate::fixtures::device()).reshape([4, 4]);
    let expected = block.transpose().matmul(weight().slice_dim(0, 0..4));
    assert_close(first.slice_dim(0, 0..4), expected, TOLERANCE);
}

#[test]
fn strength_turns_every_factor_and_rescales_whole() {
    let rescale = ("rescale", wave(&[8, 1], 7));
    let oft = ("oft_blocks", wave(&[2, 4, 4], 1));
    let boft = ("oft_blocks", wave(&[2, 2, 4, 4], 1));
    // Proportional without `rescale`.
    assert!(
        load(std::slice::from_ref(&oft))
            .expect("a patch")
            .at_strength(0.5)
            .is_none()
    );
    for tensors in [
        vec![oft, rescale.clone()],
        vec![boft.clone(), rescale.clone()],
    ] {
        let patch = load(&tensors).expect("a patch");
        let near = delta(&*at_strength(&patch, 1e-6), &layer(), &weight());
        let scale = matrix(rescale.1.clone());
        let expected = weight() * scale - weight();
        assert_close(near, expected, TOLERANCE);
    }
    let patch = load(&[boft]).expect("a patch");
    let half = delta(&*at_strength(&patch, 0.5), &layer(), &weight());
    let whole = delta(&*patch, &layer(), &weight());
    assert!(
        (half - whole.mul_scalar(0.5))
            .abs()
            .max()
            .into_scalar::<f32>()
            > 1e-3
    );
}

#[test]
fn blocks_are_split_where_they_end() {
    let tensors = [
        ("oft_blocks", wave(&[2, 4, 4], 1)),
        ("rescale", wave(&[8, 1], 7)),
    ];
    let patch = load(&tensors).expect("a patch");
    let cut = weight().slice_dim(0, 4..8);
    let found = delta(&*slice_rows(&patch, 4..8), &LayerShape::linear(4, 5), &cut);
    let whole = delta(&*patch, &layer(), &weight());
    assert_close(found, whole.slice_dim(0, 4..8), TOLERANCE);
    let butterfly = load(&[("oft_blocks", wave(&[2, 2, 4, 4], 1))]).expect("a patch");
    let refused = |patch: &Arc<dyn Patch>, rows: std::ops::Range<usize>| {
        let shape = LayerShape::linear(rows.len(), 5);
        refusal(&*slice_rows(patch, rows), &shape)
    };
    assert!(refused(&patch, 2..6).starts_with("a oft patch reads the whole fused weight"));
    assert!(refused(&butterfly, 4..8).starts_with("a boft patch reads the whole fused weight"));
}

#[test]
fn what_has_no_meaning_is_refused() {
    // As a loader's tests have it; no trainer writes both.
    let both = [
        ("oft_blocks", wave(&[4, 2, 2], 1)),
        ("oft_diag", wave(&[4, 2], 1)),
    ];
    assert_eq!(
        message(load(&both)),
        "layer `layer`: `oft_blocks` and `oft_diag` are both there, which no trainer is known to write; remove the \
         one that is not the adapter's"
    );
    assert_eq!(
        message(load(&[("oft_diag", wave(&[8], 1))])),
        "layer `layer`: `oft_diag` has shape [8], expected 3 dimensions, [blocks, size, size], the only form that has \
         a known meaning"
    );
    assert_eq!(
        message(load(&[("oft_blocks", wave(&[4, 6], 1))])),
        "layer `layer`: tensor `oft_blocks` has shape [4, 6], expected 4 dimensions (boft) or 3 dimensions (oft)"
    );
    let documented = overglaze_patches::registry::kinds();
    let oft = documented.iter().find(|kind| kind.name == "oft");
    let signatures = oft.expect("a kind").signatures;
    assert_eq!(signatures, [["oft_blocks"], ["oft_diag"]]);
    assert!(
        message(load(&[("oft_blocks", wave(&[2, 4, 3], 1))])).contains("expected square blocks")
    );
    assert!(message(load(&[("oft_blocks", wave(&[2, 0, 0], 1))])).contains("without values"));
    let odd = [("oft_blocks", wave(&[2, 2, 3, 3], 1))];
    assert!(message(load(&odd)).contains("expected an even size"));
    let deep = [("oft_blocks", wave(&[3, 2, 4, 4], 1))];
    assert!(message(load(&deep)).contains("a multiple of 2^(factors − 1)"));
    let rescale = [
        ("oft_blocks", wave(&[2, 4, 4], 1)),
        ("rescale", wave(&[7, 1], 1)),
    ];
    assert!(message(load(&rescale)).contains("has 7 values, but the blocks have 8 rows"));
    let patch = load(&[("oft_blocks", wave(&[2, 4, 4], 1))]).expect("a patch");
    assert_eq!(
        refusal(&*patch, &LayerShape::linear(9, 5)),
        "the oft patch is for a weight of shape [8, 5], the layer has [9, 5]"
    );
    assert!(refusal(&*patch, &LayerShape::embedding(8, 5)).contains("no meaning on an embedding"));
}
