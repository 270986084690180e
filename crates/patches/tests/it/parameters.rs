//! Kinds that state a parameter or its difference: full, norm, bias, replaced.

use std::sync::Arc;

use burn::tensor::Tensor;
use overglaze_patches::{
    BaseLayer, LayerShape, Patch, Replaced, at_strength,
    kinds::set_weight::{Parameter, SetParameter},
    slice_rows,
};

use crate::{
    fixtures::{assert_close, delta_bias, device, load, matrix, message, scalar, wave},
    formulas::{TOLERANCE, check, on_base},
};

#[test]
fn differences() {
    let full = |dims: &[usize]| vec![("diff", wave(dims, 1))];
    for (dims, layer) in [
        (&[6, 5][..], LayerShape::linear(6, 5)),
        (&[6, 5, 1, 1], LayerShape::linear(6, 5)),
        (&[6, 5], LayerShape::conv(&[6, 5, 1, 1], 1)),
        (&[6, 5, 3], LayerShape::conv(&[6, 5, 3], 1)),
        (&[6, 2, 3, 3], LayerShape::conv(&[6, 2, 3, 3], 3)),
        (&[6, 5], LayerShape::embedding(6, 5)),
        (&[6], LayerShape::norm(6)),
        (&[1, 6, 5], LayerShape::parameter(&[1, 6, 5])),
        (&[6, 5], LayerShape::parameter(&[1, 6, 5])),
    ] {
        let expected = matrix(wave(&layer.matrix(), 1));
        check(&full(dims), &layer, &expected);
    }
    let [linear, norm] = [LayerShape::linear(6, 5), LayerShape::norm(6)];
    let norm_weight = matrix(wave(&[6, 1], 1));
    check(&vec![("w_norm", wave(&[6], 1))], &norm, &norm_weight);
    let expected: Tensor<1> = Tensor::from_data(wave(&[6], 2), &device());
    for (key, beside, layer) in [
        ("diff_b", None, &linear),
        ("diff_b", Some("diff"), &linear),
        ("diff_b", None, &norm),
        ("b_norm", None, &norm),
        ("b_norm", Some("w_norm"), &norm),
    ] {
        let mut tensors = vec![(key, wave(&[6], 2))];
        tensors.extend(beside.map(|key| (key, wave(&layer.matrix(), 1))));
        let patch = load(&tensors).expect("a patch");
        patch.check(layer).expect("it fits");
        let found = delta_bias(patch.as_ref(), layer).expect("a bias");
        assert_close(found, expected.clone(), 0.0);
        let delta = patch.delta_weight(&BaseLayer::of_shape(layer));
        assert_eq!(delta.expect("no values").is_some(), beside.is_some());
    }
}

/// `diff_b` beside another kind's keys is taken as it stands, and at the strength of the whole.
#[test]
fn a_bias_beside_any_kind() {
    let low_rank = vec![
        ("lora_up.weight", wave(&[12, 4], 1)),
        ("lora_down.weight", wave(&[4, 10], 2)),
        ("lora_up.bias", wave(&[12], 4)),
        ("alpha", scalar(2.0)),
    ];
    let kronecker = vec![("lokr_w1", wave(&[3, 2], 1)), ("lokr_w2", wave(&[4, 5], 2))];
    let set = vec![("set_weight", wave(&[12, 10], 1))];
    let layer = LayerShape::linear(12, 10);
    let bias: Tensor<1> = Tensor::from_data(wave(&[12], 5), &device());
    let own: Tensor<1> = Tensor::from_data(wave(&[12], 4), &device());
    for (tensors, expected) in [
        (low_rank, bias.clone() + own.mul_scalar(0.5)),
        (kronecker, bias.clone()),
        (set, bias),
    ] {
        let alone = load(&tensors).expect("a patch");
        let both = load(&[tensors, vec![("diff_b", wave(&[12], 5))]].concat()).expect("a patch");
        assert_eq!(both.kind(), alone.kind());
        assert_eq!(both.num_bytes(), alone.num_bytes() + 4 * 12);
        assert_eq!(both.replaces(), alone.replaces());
        assert_eq!(both.low_rank().is_some(), alone.low_rank().is_some());
        let found = delta_bias(both.as_ref(), &layer).expect("a bias");
        assert_close(found, expected.clone(), TOLERANCE);
        let half = at_strength(&both, 0.5);
        let found = delta_bias(half.as_ref(), &layer).expect("a bias");
        assert_close(found, expected.clone().mul_scalar(0.5), TOLERANCE);
        let rows = slice_rows(&both, 5..8);
        let found = delta_bias(rows.as_ref(), &layer.with_rows(3)).expect("a bias");
        assert_close(found, expected.slice_dim(0, 5..8), TOLERANCE);
    }
}

#[test]
fn replaced_parameters() {
    let place = &device();
    let base = matrix(wave(&[6, 5], 9));
    let base_bias: Tensor<1> = Tensor::from_data(wave(&[6], 8), place);
    let linear = LayerShape::linear(6, 5);
    let norm = LayerShape::norm(6);
    let ours = SetParameter::new(Parameter::Weight, wave(&[6, 5], 1), &device()).expect("values");
    let set = load(&[("set_weight", wave(&[6, 5], 1))]).expect("a patch");
    for patch in [Arc::new(ours) as Arc<dyn Patch>, set] {
        let expected = matrix(wave(&[6, 5], 1)) - base.clone();
        for strength in [1.0, 0.25, -2.0] {
            // It replaces, whatever the strength.
            let patch = at_strength(&patch, strength);
            let found = on_base(patch.as_ref(), &linear, &base, Some(&base_bias));
            assert_close(found, expected.clone(), TOLERANCE);
            let replaced = Replaced {
                weight: true,
                bias: false,
            };
            assert_eq!(patch.replaces(), replaced);
        }
        assert!(delta_bias(patch.as_ref(), &linear).is_none());
    }
    let scale = load(&[("scale", wave(&[6], 1))]).expect("a patch");
    let base_scale = matrix(wave(&[6, 1], 9));
    let found = on_base(scale.as_ref(), &norm, &base_scale, None);
    assert_close(found, matrix(wave(&[6, 1], 1)) - base_scale, TOLERANCE);
    let value: Tensor<1> = Tensor::from_data(wave(&[6], 1), place);
    let bias = SetParameter::new(Parameter::Bias, wave(&[6], 1), &device()).expect("values");
    let bias = at_strength(&(Arc::new(bias) as Arc<dyn Patch>), 0.5);
    assert!(bias.replaces().bias && !bias.replaces().weight);
    // A missing bias counts as zeros.
    let found = delta_bias(bias.as_ref(), &linear).expect("a bias");
    assert_close(found, value.clone(), 0.0);
    let layer = BaseLayer {
        bias: Some(&base_bias),
        ..BaseLayer::of_shape(&linear)
    };
    let found = bias.delta_bias(&layer).expect("a base").expect("a bias");
    assert_close(found, value - base_bias, 0.0);
}

#[test]
fn a_bias_is_a_vector() {
    for shape in [&[][..], &[6, 1], &[1, 6], &[0, 0]] {
        let patch = SetParameter::new(Parameter::Bias, wave(shape, 1), &device());
        assert_eq!(
            message(patch),
            format!(
                "layer `set-parameter`: tensor `bias` has shape {shape:?}, expected one dimension"
            )
        );
    }
    let patch = SetParameter::new(Parameter::Bias, wave(&[6], 1), &device()).expect("a vector");
    assert!(patch.check(&LayerShape::linear(6, 5)).is_ok());
}
