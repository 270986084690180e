//! Weight decomposition: which axis, which weight the norm is of, what it wraps, and what a split makes of it.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use overglaze_patches::{BaseLayer, LayerShape, Patch, slice_rows};

use crate::{
    fixtures::{assert_close, load, matrix, message, refusal, scalar, wave},
    golden_case::{Case, Layer},
};

type Tensors = Vec<(&'static str, TensorData)>;

fn lora(d_output: usize, fan_in: usize) -> Tensors {
    vec![
        ("lora_up.weight", wave(&[d_output, 2], 1)),
        ("lora_down.weight", wave(&[2, fan_in], 2)),
    ]
}

fn loha(d_output: usize, fan_in: usize) -> Tensors {
    vec![
        ("hada_w1_a", wave(&[d_output, 2], 1)),
        ("hada_w1_b", wave(&[2, fan_in], 2)),
        ("hada_w2_a", wave(&[d_output, 2], 3)),
        ("hada_w2_b", wave(&[2, fan_in], 4)),
    ]
}

fn lokr(size: usize) -> Tensors {
    vec![
        ("lokr_w1", wave(&[2, 2], 1)),
        ("lokr_w2", wave(&[size / 2, size / 2], 2)),
    ]
}

fn glora(d_output: usize, d_input: usize) -> Tensors {
    vec![
        ("a1.weight", wave(&[d_input, 2], 1)),
        ("a2.weight", wave(&[2, d_input], 2)),
        ("b1.weight", wave(&[d_output, 2], 3)),
        ("b2.weight", wave(&[2, d_input], 4)),
    ]
}

/// Magnitudes between 0.5 and 1.5.
fn magnitude(shape: &[usize]) -> TensorData {
    let values: Vec<f32> = wave(shape, 9)
        .iter()
        .map(|value: f32| 1.0 + value / 2.0)
        .collect();
    TensorData::new(values, shape)
}

fn with(inner: &Tensors, key: &'static str, shape: &[usize]) -> Tensors {
    [inner.clone(), vec![(key, magnitude(shape))]].concat()
}

fn base(d_output: usize, fan_in: usize) -> Tensor<2> {
    matrix(wave(&[d_output, fan_in], 20))
}

fn delta(patch: &dyn Patch, shape: &LayerShape, weight: &Tensor<2>) -> Tensor<2> {
    patch.check(shape).expect("the patch fits");
    let base = BaseLayer {
        shape,
        weight: Some(weight),
        bias: None,
    };
    let delta = patch.delta_weight(&base).expect("values are there");
    delta.expect("it changes the weight")
}

/// `V · m / ‖V‖ − W`, norms along `axis` of the matrix.
fn expected(weight: &Tensor<2>, inner: Tensor<2>, axis: usize) -> Tensor<2> {
    let changed = weight.clone() + inner;
    let norms = changed.clone().powf_scalar(2.0).sum_dim(axis).sqrt();
    let m = matrix(magnitude(&norms.dims()));
    changed * m / norms - weight.clone()
}

/// Sums of at most 12 products of numbers below 1, in f32.
const TOLERANCE: f32 = 2e-5;

fn read(tensors: &Tensors) -> Arc<dyn Patch> {
    load(tensors).expect("a patch")
}

#[test]
fn c4_where_the_one_is_decides_the_axis_of_a_square_layer() {
    let weight = base(8, 8);
    let square = LayerShape::linear(8, 8);
    for inner in [lora(8, 8), loha(8, 8), lokr(8)] {
        let change = delta(&*read(&inner), &square, &weight);
        for (shape, axis) in [([8, 1], 1), ([1, 8], 0)] {
            let patch = read(&with(&inner, "dora_scale", &shape));
            assert_eq!(patch.kind(), "dora");
            let expected = expected(&weight, change.clone(), axis);
            assert_close(delta(&*patch, &square, &weight), expected, TOLERANCE);
        }
    }
}

#[test]
fn c2_the_norm_is_of_the_changed_weight() {
    // The change is a hundred times the base.
    let weight = base(8, 5).mul_scalar(0.01);
    let patch = read(&with(&lora(8, 5), "dora_scale", &[8, 1]));
    let found = delta(&*patch, &LayerShape::linear(8, 5), &weight) + weight.clone();
    let norms = found.powf_scalar(2.0).sum_dim(1).sqrt();
    assert_close(norms, matrix(magnitude(&[8, 1])), TOLERANCE);
}

#[test]
fn a1_every_spelling_of_peft_and_ai_toolkit_is_of_outputs() {
    let weight = base(6, 6);
    let square = LayerShape::linear(6, 6);
    let change = delta(&*read(&lora(6, 6)), &square, &weight);
    let expected = expected(&weight, change, 1);
    for key in ["lora_magnitude_vector", "lora_magnitude", "magnitude"] {
        for shape in [&[6][..], &[6, 1], &[1, 6, 1, 1]] {
            let mut tensors: Vec<_> = lora(6, 6);
            tensors.push((key, magnitude(shape)));
            let renamed = tensors
                .into_iter()
                .map(|(key, data)| (format!("diffusion_model.a.{key}"), data));
            let device = crate::fixtures::device();
            let set = overglaze_patches::PatchSet::from_tensors("file", renamed, None, &device);
            let set = set.expect("an adapter");
            assert_eq!((set.entries.len(), set.num_keys()), (1, 3));
            let found = delta(&*set.entries[0].patch, &square, &weight);
            assert_close(found, expected.clone(), TOLERANCE);
        }
    }
}

#[test]
fn adapter_names_in_magnitudes_are_dropped() {
    for tail in [".weight", ".default", ".default.weight", ""] {
        let key = format!("base_model.model.a.lora_magnitude_vector{tail}");
        let split = overglaze_patches::dialects::split_suffix(&key);
        assert_eq!(
            split,
            Some(("base_model.model.a", "lora_magnitude_vector".into())),
            "{key}"
        );
    }
}

/// `[1, N, 1, 1]` is of outputs by PEFT's key and of input channels by LyCORIS's.
#[test]
fn one_shape_has_two_meanings_by_its_key() {
    let conv = LayerShape::conv(&[6, 6, 3, 3], 1);
    let weight = base(6, 54);
    let inner = vec![
        ("lora_up.weight", wave(&[6, 2, 1, 1], 1)),
        ("lora_down.weight", wave(&[2, 6, 3, 3], 2)),
    ];
    let changed = weight.clone() + delta(&*read(&inner), &conv, &weight);
    let outputs = read(&with(&inner, "lora_magnitude_vector", &[1, 6, 1, 1]));
    let found = delta(&*outputs, &conv, &weight) + weight.clone();
    let norms = found.powf_scalar(2.0).sum_dim(1).sqrt();
    assert_close(norms, matrix(magnitude(&[6, 1])), TOLERANCE);
    let inputs = read(&with(&inner, "dora_scale", &[1, 6, 1, 1]));
    let found = delta(&*inputs, &conv, &weight) + weight;
    let by_channel = found.clone().reshape([6, 6, 9]).powf_scalar(2.0);
    let norms = by_channel.sum_dim(0).sum_dim(2).sqrt().reshape([6, 1]);
    assert_close(norms, matrix(magnitude(&[6, 1])), TOLERANCE);
    // It is V that is rescaled, not W.
    assert!((found - changed).abs().max().into_scalar::<f32>() > 0.1);
}

#[test]
fn b18_strength_interpolates_the_whole_change() {
    for name in [
        "lycoris_dora_linear_out_ns",
        "lycoris_dora_linear_in_ns",
        "lycoris_dora_conv3x3_in",
    ] {
        let case = Case::read(name);
        let patch = case.patch("patch.0.", &serde_json::Value::Null);
        // Proportional to the strength: nothing else is asked of the patch at 0.5, and nothing at all at 0.
        assert!(patch.at_strength(0.5).is_none());
        let layer = Layer::read(&case, &case.json("module"), "param.");
        let merged = |strength| layer.merged(&[(Arc::clone(&patch), strength)]).0;
        assert_close(merged(0.0), layer.weight.clone(), 0.0);
        let half = (merged(1.0) + layer.weight.clone()).mul_scalar(0.5);
        assert_close(merged(0.5), half, TOLERANCE);
    }
}

#[test]
fn one_axis_is_decided_by_size() {
    let weight = base(6, 5);
    let shape = LayerShape::linear(6, 5);
    let change = delta(&*read(&lora(6, 5)), &shape, &weight);
    for (length, axis) in [(6, 1), (5, 0)] {
        let patch = read(&with(&lora(6, 5), "dora_scale", &[length]));
        let expected = expected(&weight, change.clone(), axis);
        assert_close(delta(&*patch, &shape, &weight), expected, TOLERANCE);
    }
    let patch = read(&with(&lora(6, 5), "dora_scale", &[7]));
    assert_eq!(
        refusal(&*patch, &shape),
        "the dora patch is for a weight of shape [7, 5], the layer has [6, 5]"
    );
}

#[test]
fn it_wraps_kinds_that_read_the_base() {
    let weight = base(6, 5);
    let shape = LayerShape::linear(6, 5);
    let change = delta(&*read(&glora(6, 5)), &shape, &weight);
    let patch = read(&with(&glora(6, 5), "dora_scale", &[6, 1]));
    assert_close(
        delta(&*patch, &shape, &weight),
        expected(&weight, change, 1),
        TOLERANCE,
    );
}

#[test]
fn rows_without_values_stay_finite() {
    let weight = Tensor::zeros([6, 5], &crate::fixtures::device());
    let inner = vec![
        ("lora_up.weight", TensorData::zeros::<f32, _>([6, 2])),
        ("lora_down.weight", wave(&[2, 5], 2)),
    ];
    for (key, shape) in [("lora_magnitude_vector", &[6][..]), ("dora_scale", &[1, 5])] {
        let patch = read(&with(&inner, key, shape));
        let found = delta(&*patch, &LayerShape::linear(6, 5), &weight);
        assert_eq!(found.abs().max().into_scalar::<f32>(), 0.0, "{key}");
    }
}

#[test]
fn outputs_are_split_and_inputs_are_not() {
    let weight = base(6, 5);
    let shape = LayerShape::linear(6, 5);
    for (key, dims) in [
        ("dora_scale", &[6, 1][..]),
        ("dora_scale", &[6]),
        ("magnitude", &[6]),
    ] {
        let key = if key == "magnitude" {
            "lora_magnitude_vector"
        } else {
            key
        };
        let patch = read(&with(&lora(6, 5), key, dims));
        let part = slice_rows(&patch, 2..5);
        let cut = weight.clone().slice_dim(0, 2..5);
        let found = delta(&*part, &LayerShape::linear(3, 5), &cut);
        let whole = delta(&*patch, &shape, &weight);
        assert_close(found, whole.slice_dim(0, 2..5), TOLERANCE);
    }
    let refused = "a dora patch reads the whole fused weight and cannot be cut to its rows 2..5; mount it on a \
                   checkpoint that keeps the weight fused";
    for dims in [&[1, 5][..], &[5]] {
        let part = slice_rows(&read(&with(&lora(6, 5), "dora_scale", dims)), 2..5);
        assert_eq!(refusal(&*part, &LayerShape::linear(3, 5)), refused);
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let both = [
        with(&lora(6, 5), "dora_scale", &[6, 1]),
        vec![("lora_magnitude_vector", magnitude(&[6]))],
    ];
    assert_eq!(
        message(load(&both.concat())),
        "layer `layer`: `dora_scale` and `lora_magnitude_vector` are both there, expected one magnitude"
    );
    assert!(
        message(load(&with(&lora(6, 5), "dora_scale", &[6, 5])))
            .contains("has shape [6, 5], expected one")
    );
    let set = vec![
        ("set_weight", wave(&[6, 5], 1)),
        ("dora_scale", magnitude(&[6, 1])),
    ];
    assert_eq!(
        message(load(&set)),
        "layer `layer`: a set-parameter patch has no difference to decompose"
    );
    let alone = vec![("dora_scale", magnitude(&[6, 1]))];
    assert_eq!(
        message(load(&alone)),
        "layer `layer`: the factors that a dora patch changes are missing beside [\"dora_scale\"]; is the file \
         complete?"
    );
    assert_eq!(
        message(load(&with(&lora(6, 5), "dora_scale", &[1, 1, 6]))),
        "layer `layer`: `dora_scale` has its values on axis 2 (from 0), expected them on axis 0 for outputs or 1 for \
         inputs"
    );
    let norm = read(&with(&lora(6, 5), "dora_scale", &[6, 1]));
    assert!(
        refusal(&*norm, &LayerShape::norm(6)).starts_with("a dora patch has no meaning on a norm")
    );
    let base = LayerShape::linear(6, 5);
    assert!(message(norm.delta_weight(&BaseLayer::of_shape(&base))).contains("needs the values"));
}

/// The bias of the inner patch is the wrapped one's.
#[test]
fn the_inner_bias_passes() {
    let tensors = [
        with(&lora(6, 5), "dora_scale", &[6, 1]),
        vec![("lora_up.bias", wave(&[6], 5)), ("alpha", scalar(2.0))],
    ];
    let patch = read(&tensors.concat());
    assert!(patch.changes_bias());
    let shape = LayerShape::linear(6, 5);
    let found = patch
        .delta_bias(&BaseLayer::of_shape(&shape))
        .expect("a bias");
    let expected = matrix(wave(&[1, 6], 5)).reshape([6]);
    assert_close(found.expect("a bias"), expected, TOLERANCE);
}

/// PEFT's magnitude of an embedding has one value a feature, and norms are over the vocabulary; also on a square one.
#[test]
fn the_magnitude_of_an_embedding_is_of_its_features() {
    for num_embeddings in [7, 5] {
        let inner: Tensors = vec![
            ("lora_embedding_A", wave(&[2, num_embeddings], 1)),
            ("lora_embedding_B", wave(&[5, 2], 2)),
        ];
        let (weight, shape) = (
            base(num_embeddings, 5),
            LayerShape::embedding(num_embeddings, 5),
        );
        let change = delta(&*read(&inner), &shape, &weight);
        let patch = read(&with(&inner, "lora_magnitude_vector", &[5]));
        let expected = expected(&weight, change, 0);
        assert_close(delta(&*patch, &shape, &weight), expected, TOLERANCE);
        // Norms of a part would be others: its rows are refused, or cut from the whole.
        let part = slice_rows(&patch, 1..3);
        assert!(part.check(&LayerShape::embedding(2, 5)).is_err());
    }
    let inner: Tensors = vec![
        ("lora_embedding_A", wave(&[2, 7], 1)),
        ("lora_embedding_B", wave(&[5, 2], 2)),
    ];
    let patch = read(&with(&inner, "lora_magnitude_vector", &[7]));
    assert_eq!(
        refusal(&*patch, &LayerShape::embedding(7, 5)),
        "the dora patch is for a weight of shape [7, 7], the layer has [7, 5]"
    );
}
