//! Rotations of inputs: old and new files, the series of two versions, limits, shared blocks.

use std::{path::Path, sync::Arc};

use burn::tensor::{Tensor, TensorData};
use overglaze_patches::{
    AdapterConfig, BaseLayer, LayerShape, Patch, PatchError, TensorGroup, registry, slice_rows,
};

use crate::fixtures::{assert_close, device, matrix, message, refusal, wave};

/// Sums of at most 20 products of numbers below 1 in f32.
const TOLERANCE: f32 = 2e-5;

fn read(
    tensors: &[(&str, TensorData)],
    config: Option<&str>,
) -> Result<Arc<dyn Patch>, PatchError> {
    let tensors = tensors
        .iter()
        .map(|(key, data)| (String::from(*key), data.clone()));
    let mut group = TensorGroup::new("fc", tensors.collect());
    group.config = config.map(|text| {
        let config = AdapterConfig::from_json(Path::new("c.json"), text);
        config.expect("a configuration").layer("fc")
    });
    registry::load(group, &device())
}

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

/// A turn by one angle in the plane: Q = `[[0, q], [-q, 0]]`.
fn plane(q: f32, config: Option<&str>) -> [f32; 2] {
    let patch = read(&[("oft_R.weight", TensorData::from([[q]]))], config).expect("a patch");
    let weight = matrix(TensorData::from([[1.0_f32, 0.0]]));
    let rotated = weight.clone() + delta(&*patch, &LayerShape::linear(1, 2), &weight);
    let values: Vec<f32> = rotated.into_data().iter().collect();
    [values[0], values[1]]
}

/// The first row of Rᵀ for `R = Σ fᵢ Qⁱ` with Q² = −q².
fn series(q: f32, factors: [f32; 4]) -> [f32; 2] {
    let even = 1.0 - factors[1] * q * q + factors[3] * q.powi(4);
    let odd = factors[0] * q - factors[2] * q.powi(3);
    [even, -odd]
}

#[test]
fn the_series_ends_as_the_version_has_it() {
    for (config, factors) in [
        (Some(r#"{"peft_type": "OFT"}"#), [2.0, 2.0, 2.0, 2.0]),
        (Some(r#"{"peft_version": "0.17.1"}"#), [2.0, 2.0, 2.0, 2.0]),
        (Some(r#"{"peft_version": "0.18.0"}"#), [2.0, 2.0, 2.0, 1.0]),
        (
            Some(r#"{"peft_version": "0.18.1.dev0"}"#),
            [2.0, 2.0, 2.0, 1.0],
        ),
        (Some(r#"{"peft_version": "1.0.0"}"#), [2.0, 2.0, 2.0, 1.0]),
        (None, [2.0, 2.0, 2.0, 1.0]),
        (Some(r#"{"num_cayley_neumann_terms": 1}"#), [0.0; 4]),
        (
            Some(r#"{"num_cayley_neumann_terms": 2}"#),
            [2.0, 0.0, 0.0, 0.0],
        ),
        (
            Some(r#"{"num_cayley_neumann_terms": 3}"#),
            [2.0, 2.0, 0.0, 0.0],
        ),
        (
            Some(r#"{"num_cayley_neumann_terms": 4, "peft_version": "0.18.0"}"#),
            [2.0, 2.0, 1.0, 0.0],
        ),
        (
            Some(r#"{"num_cayley_neumann_terms": 3, "peft_version": "0.18.0"}"#),
            [2.0, 2.0, 1.0, 0.0],
        ),
    ] {
        let (found, expected) = (plane(0.3, config), series(0.3, factors));
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() < 1e-6,
                "{config:?}: {found}, expected {expected}"
            );
        }
    }
}

/// The exact transform turns the other way.
#[test]
fn the_exact_transform_has_the_opposite_sign() {
    let [even, odd] = plane(0.3, Some(r#"{"use_cayley_neumann": false}"#));
    let (q, divisor) = (0.3_f32, 1.0 + 0.09);
    assert!((even - (1.0 - q * q) / divisor).abs() < 1e-6);
    assert!((odd - 2.0 * q / divisor).abs() < 1e-6);
}

#[test]
fn constrained_blocks_are_limited() {
    let config = r#"{"coft": true, "eps": 0.01, "use_cayley_neumann": false}"#;
    let [_, odd] = plane(0.3, Some(config));
    // Q has the norm q·√2.
    let q = 0.01 / 2.0_f32.sqrt();
    assert!((odd - 2.0 * q / (1.0 + q * q)).abs() < 1e-6);
    let [_, free] = plane(0.003, Some(config));
    assert!((free - 0.006 / (1.0 + 9e-6)).abs() < 1e-6);
}

#[test]
fn old_files_scale_their_outputs() {
    let tensors = [("oft_r", wave(&[2, 2, 2], 1)), ("oft_s", wave(&[3, 1], 2))];
    let patch = read(&tensors, None).expect("a patch");
    let (shape, weight) = (LayerShape::linear(3, 4), matrix(wave(&[3, 4], 3)));
    let patched = weight.clone() + delta(&*patch, &shape, &weight);
    let lengths = |weight: Tensor<2>| weight.powf_scalar(2.0).sum_dim(1).sqrt();
    let expected = lengths(weight.clone()) * matrix(wave(&[3, 1], 2)).abs();
    assert_close(lengths(patched), expected, TOLERANCE);
    let cut = weight.clone().slice_dim(0, 1..3);
    let found = delta(&*slice_rows(&patch, 1..3), &LayerShape::linear(2, 4), &cut);
    assert_close(
        found,
        delta(&*patch, &shape, &weight).slice_dim(0, 1..3),
        TOLERANCE,
    );
}

/// A limit from the configuration: `eps · (d_output / r)² / √blocks`.
#[test]
fn old_constrained_blocks_are_limited() {
    let tensors = [
        ("oft_r", wave(&[2, 2, 2], 1)),
        ("oft_s", TensorData::from([[1.0_f32]; 4])),
    ];
    let change = |config: &str| {
        let patch = read(&tensors, Some(config)).expect("a patch");
        let weight = matrix(wave(&[4, 4], 3));
        let change = delta(&*patch, &LayerShape::linear(4, 4), &weight);
        change.abs().max().into_scalar::<f32>()
    };
    assert!(change(r#"{"r": 2, "coft": false}"#) > 0.1);
    let limited = change(r#"{"r": 2, "coft": true, "eps": 1e-4}"#);
    assert!(limited > 0.0 && limited < 1e-3);
}

#[test]
fn one_block_stands_for_all_and_rows_are_cut_freely() {
    let triangle = wave(&[1, 1], 1);
    let shared = read(&[("oft_R.weight", triangle.clone())], None).expect("a patch");
    let values: Vec<f32> = triangle.iter().collect();
    let repeated = TensorData::new(vec![values[0]; 9], [9, 1]);
    let apart = read(&[("oft_R.weight", repeated)], None).expect("a patch");
    // The columns of a convolution are rotated flattened.
    let (shape, weight) = (
        LayerShape::conv(&[3, 2, 3, 3], 1),
        matrix(wave(&[3, 18], 3)),
    );
    let whole = delta(&*apart, &shape, &weight);
    assert_close(delta(&*shared, &shape, &weight), whole.clone(), TOLERANCE);
    let cut = weight.slice_dim(0, 1..2);
    let found = delta(&*slice_rows(&apart, 1..2), &shape.with_rows(1), &cut);
    assert_close(found, whole.slice_dim(0, 1..2), TOLERANCE);
}

#[test]
fn what_does_not_fit_is_refused() {
    let patch = read(&[("oft_R.weight", wave(&[2, 3], 1))], None).expect("a patch");
    assert_eq!(
        refusal(&*patch, &LayerShape::linear(4, 7)),
        "the peft-oft patch is for a weight of shape [4, 6], the layer has [4, 7]"
    );
    let shared = read(&[("oft_R.weight", wave(&[1, 3], 1))], None).expect("a patch");
    assert!(shared.check(&LayerShape::linear(4, 6)).is_ok());
    assert!(shared.check(&LayerShape::linear(4, 7)).is_err());
    for shape in [&[2, 4][..], &[2, 0], &[0, 3], &[3]] {
        let result = read(&[("oft_R.weight", wave(shape, 1))], None);
        assert!(
            message(result).contains("expected the upper triangles"),
            "{shape:?}"
        );
    }
    let half = read(&[("oft_r", wave(&[2, 2, 2], 1))], None);
    assert!(message(half).contains("[\"oft_s\"] missing"));
}

/// Seventeen megabytes of f16 would take a minute before anything is known of the layer.
#[test]
fn more_work_than_a_layer_asks_for_is_refused() {
    let zeros = TensorData::new(vec![burn::tensor::f16::ZERO; 7 * 2_096_128], [7, 2_096_128]);
    let found = message(read(&[("oft_R.weight", zeros)], None));
    let expected = "layer `fc`: `oft_R.weight` has 7 blocks of 2048 rows, expected at most 6 of them; use an adapter \
                    with smaller blocks, or one merged into its model";
    assert_eq!(found, expected);
}
