//! Learned scales: which side, whether the bias goes along, and what is not told by the file.

use std::{path::Path, sync::Arc};

use burn::tensor::TensorData;
use overglaze_patches::{
    AdapterConfig, BaseLayer, LayerShape, Patch, TensorGroup, registry, slice_rows,
};

use crate::fixtures::{assert_close, device, load, matrix, message, refusal, scalar, wave};

fn peft(shape: &[usize], config: Option<&str>) -> Arc<dyn Patch> {
    let tensors = [("ia3_l".to_owned(), wave(shape, 1))];
    let mut group = TensorGroup::new("fc", tensors.into_iter().collect());
    group.config = config.map(|text| {
        let config = AdapterConfig::from_json(Path::new("c.json"), text);
        config.expect("a configuration").layer("fc")
    });
    registry::load(group, &device()).expect("a patch")
}

/// ΔW and Δb of `patch` on a base of waves, divided by the base: the scales.
fn scales(patch: &dyn Patch, shape: &LayerShape) -> (Vec<f32>, Option<Vec<f32>>) {
    patch.check(shape).expect("the patch fits");
    let [d_output, fan_in] = shape.matrix();
    let weight = matrix(wave(&[d_output, fan_in], 5));
    let bias = matrix(wave(&[1, d_output], 6)).reshape([d_output]);
    let base = BaseLayer {
        shape,
        weight: Some(&weight),
        bias: Some(&bias),
    };
    let delta = patch
        .delta_weight(&base)
        .expect("values")
        .expect("a change");
    let delta_bias = patch.delta_bias(&base).expect("values");
    assert_eq!(delta_bias.is_some(), patch.changes_bias());
    let values = |data: TensorData| data.iter().collect::<Vec<f32>>();
    (
        values((delta / weight.clone()).into_data()),
        delta_bias.map(|delta| values((delta / bias.clone()).into_data())),
    )
}

fn assert_scales(found: &[f32], expected: impl Fn(usize) -> f32) {
    for (index, found) in found.iter().enumerate() {
        assert!(
            (found - expected(index)).abs() < 1e-4,
            "element {index}: {found}"
        );
    }
}

fn value(index: usize) -> f32 {
    wave(&[64], 1).iter::<f32>().nth(index).expect("a value")
}

#[test]
fn lycoris_leaves_the_bias() {
    let shape = LayerShape::linear(6, 4);
    for (on_input, length, column) in [(0.0, 6, false), (1.0, 4, true)] {
        let patch = load(&[
            ("weight", wave(&[length], 1)),
            ("on_input", scalar(on_input)),
        ]);
        let (weight, bias) = scales(&*patch.expect("a patch"), &shape);
        assert_scales(&weight, |index| {
            value(if column { index % 4 } else { index / 4 })
        });
        assert_eq!(bias, None);
    }
}

/// Trainers save the flag as a number or as a truth value.
#[test]
fn the_flag_has_any_dtype() {
    let flag = TensorData::new(vec![1_u8], [0_usize; 0]);
    let patch = load(&[("weight", wave(&[4], 1)), ("on_input", flag)]).expect("a patch");
    assert!(patch.check(&LayerShape::linear(6, 4)).is_ok());
    assert!(patch.check(&LayerShape::linear(4, 6)).is_err());
}

#[test]
fn peft_scales_the_bias_of_outputs_alone() {
    let shape = LayerShape::linear(6, 4);
    let (weight, bias) = scales(&*peft(&[6, 1], None), &shape);
    assert_scales(&weight, |index| value(index / 4) - 1.0);
    assert_scales(&bias.expect("a bias"), |index| value(index) - 1.0);
    let (weight, bias) = scales(&*peft(&[1, 4], None), &shape);
    assert_scales(&weight, |index| value(index % 4) - 1.0);
    assert_eq!(bias, None);
}

#[test]
fn the_configuration_tells_the_side_of_a_convolution() {
    let square = LayerShape::conv(&[4, 4, 3, 3], 1);
    let inputs = peft(&[1, 4, 1, 1], Some(r#"{"feedforward_modules": ["fc"]}"#));
    let (weight, bias) = scales(&*inputs, &square);
    assert_scales(&weight, |index| value(index / 9 % 4) - 1.0);
    assert_eq!(bias, None);
    let outputs = peft(&[1, 4, 1, 1], Some(r#"{"feedforward_modules": []}"#));
    let (weight, bias) = scales(&*outputs, &square);
    assert_scales(&weight, |index| value(index / 36) - 1.0);
    assert!(bias.is_some());
}

#[test]
fn without_a_configuration_the_size_tells_or_nothing() {
    let patch = peft(&[1, 4, 1, 1], None);
    let (weight, _) = scales(&*patch, &LayerShape::conv(&[4, 2, 3, 3], 1));
    assert_scales(&weight, |index| value(index / 18) - 1.0);
    assert_eq!(
        refusal(&*patch, &LayerShape::conv(&[4, 4, 3, 3], 1)),
        "a ia3 patch has no meaning on a convolution: this one has as many outputs as inputs, and `ia3_l` does not \
         say which it scales; load the adapter's folder, whose adapter_config.json does"
    );
}

#[test]
fn c14_groups_are_refused_on_the_input_side() {
    let patch = load(&[("weight", wave(&[4], 1)), ("on_input", scalar(1.0))]).expect("a patch");
    assert_eq!(
        refusal(&*patch, &LayerShape::conv(&[8, 4, 3, 3], 2)),
        "a ia3 patch has no meaning on a convolution: this one is convolved in groups, each of which reads other \
         inputs; apply it to layers of one group"
    );
    let patch = load(&[("weight", wave(&[8], 1)), ("on_input", scalar(0.0))]).expect("a patch");
    assert!(patch.check(&LayerShape::conv(&[8, 4, 3, 3], 2)).is_ok());
}

#[test]
fn both_sides_are_split_by_rows() {
    let weight = matrix(wave(&[6, 4], 5));
    for (tensors, flag) in [(wave(&[6], 1), 0.0), (wave(&[4], 1), 1.0)] {
        let patch = load(&[("weight", tensors), ("on_input", scalar(flag))]).expect("a patch");
        let delta = |patch: &dyn Patch, shape: &LayerShape, weight| {
            let base = BaseLayer {
                shape,
                weight: Some(weight),
                bias: None,
            };
            patch
                .delta_weight(&base)
                .expect("values")
                .expect("a change")
        };
        let whole = delta(&*patch, &LayerShape::linear(6, 4), &weight);
        let cut = weight.clone().slice_dim(0, 1..4);
        let found = delta(&*slice_rows(&patch, 1..4), &LayerShape::linear(3, 4), &cut);
        assert_close(found, whole.slice_dim(0, 1..4), 1e-6);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let patch = load(&[("weight", wave(&[4], 1)), ("on_input", scalar(0.0))]).expect("a patch");
    assert_eq!(
        refusal(&*patch, &LayerShape::linear(6, 4)),
        "the ia3 patch is for a weight of shape [4, 4], the layer has [6, 4]"
    );
    assert!(refusal(&*patch, &LayerShape::norm(4)).contains("no meaning on a norm"));
    assert!(message(load(&[("weight", wave(&[4], 1))])).contains("[\"on_input\"] missing"));
}

/// A change of the bias that is announced is there, zeros where the layer has no bias.
#[test]
fn a_missing_bias_is_scaled_as_zeros() {
    for (shape, layer) in [
        (&[6, 1][..], LayerShape::linear(6, 4)),
        (&[1, 4, 1, 1], LayerShape::conv(&[6, 4, 1, 1], 1)),
        (&[1, 6, 1, 1], LayerShape::conv(&[6, 4, 1, 1], 1)),
    ] {
        let patch = peft(shape, None);
        assert!(patch.changes_bias());
        let found = patch.delta_bias(&BaseLayer::of_shape(&layer));
        let found = found.expect("values").expect("a change").into_data();
        assert_eq!(found.iter().collect::<Vec<f32>>(), [0.0; 6]);
    }
}
