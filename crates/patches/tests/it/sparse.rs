//! The sparse triple beside low-rank factors.

use burn::tensor::TensorData;

use overglaze_patches::LayerShape;

use crate::fixtures::{
    assert_close, delta, delta_bias, device, load, matrix, message, scalar, sidecar, wave,
};

type Tensors = Vec<(&'static str, TensorData)>;

fn patch_with(
    indices: TensorData,
    values: TensorData,
    size: &[i64],
) -> Result<std::sync::Arc<dyn overglaze_patches::Patch>, overglaze_patches::PatchError> {
    load(&[
        ("lora_up.weight", wave(&[6, 4], 1)),
        ("lora_down.weight", wave(&[4, 5], 2)),
        ("alpha", scalar(2.0)),
        ("bias_indices", indices),
        ("bias_values", values),
        ("bias_size", TensorData::new(size.to_vec(), [size.len()])),
    ])
}

fn ints(values: &[i16], shape: [usize; 2]) -> TensorData {
    TensorData::new(values.to_vec(), shape)
}

#[test]
fn one_dimension_is_the_bias() {
    let values = TensorData::from([1.0_f32, 2.0, 4.0]);
    let patch = patch_with(ints(&[5, 0, 5], [1, 3]), values, &[6]).expect("a patch");
    let expected = matrix(TensorData::from([[1.0_f32, 0.0, 0.0, 0.0, 0.0, 2.5]])).reshape([6]);
    let found = delta_bias(patch.as_ref(), &LayerShape::linear(6, 5));
    assert_close(found.expect("a bias"), expected, 0.0);
}

#[test]
fn two_dimensions_are_the_weight() {
    let values = TensorData::from([1.0_f32, 2.0]);
    let patch = patch_with(ints(&[0, 5, 4, 1], [2, 2]), values, &[6, 5]).expect("a patch");
    let mut dense = vec![0.0_f32; 30];
    (dense[4], dense[26]) = (1.0, 2.0);
    let low_rank = matrix(wave(&[6, 4], 1)).matmul(matrix(wave(&[4, 5], 2)));
    let expected = (low_rank + matrix(TensorData::new(dense, [6, 5]))).mul_scalar(0.5);
    // Sums of 5 numbers below 2 in f32.
    assert_close(delta(patch.as_ref(), [6, 5]), expected.clone(), 1e-6);
    assert!(delta_bias(patch.as_ref(), &LayerShape::linear(6, 5)).is_none());
    assert!(sidecar(patch.as_ref(), matrix(wave(&[2, 5], 3))).is_none());
    let rows = overglaze_patches::slice_rows(&patch, 3..6);
    assert_close(
        delta(rows.as_ref(), [3, 5]),
        expected.slice([3..6, 0..5]),
        1e-6,
    );
    let copy = patch.to_device(&device(), burn::tensor::FloatDType::F32);
    assert_eq!(copy.num_bytes(), patch.num_bytes());
}

#[test]
fn what_contradicts_itself_is_refused() {
    let one = || TensorData::from([1.0_f32]);
    let cases = [
        (
            ints(&[6], [1, 1]),
            &[6_i64][..],
            "`bias_indices` points outside of the size [6]",
        ),
        (
            ints(&[-1], [1, 1]),
            &[6],
            "`bias_indices` holds a negative number",
        ),
        (
            ints(&[0], [1, 1]),
            &[7],
            "`bias_size` is [7], expected [6] or [6, 5]",
        ),
        (
            ints(&[0, 0], [2, 1]),
            &[5, 6],
            "`bias_size` is [5, 6], expected [6] or [6, 5]",
        ),
        (
            ints(&[0, 0], [2, 1]),
            &[i64::MAX, 4],
            "`bias_size` is [9223372036854775807, 4], expected 1 to 8 sizes above 0 of a tensor; is the file damaged?",
        ),
        (
            ints(&[0, 0, 0], [3, 1]),
            &[0, 1 << 40, 1 << 40],
            "`bias_size` is [0, 1099511627776, 1099511627776], expected 1 to 8 sizes above 0 of a tensor; is the \
             file damaged?",
        ),
        (
            ints(&[0], [1, 1]),
            &[],
            "`bias_size` is [], expected 1 to 8 sizes above 0 of a tensor; is the file damaged?",
        ),
        (
            ints(&[0, 0], [1, 2]),
            &[6],
            "`bias_indices` has shape [1, 2], expected [1, 1] beside `bias_values` of shape [1]",
        ),
        (
            TensorData::new(vec![0_u64], [1, 1]),
            &[6],
            "`bias_indices` has dtype u64, expected a signed integer dtype",
        ),
    ];
    for (indices, size, why) in cases {
        let found = message(patch_with(indices, one(), size));
        assert_eq!(found, format!("layer `layer`: {why}"));
    }
}

/// The triple alone meets a layer without any other size to agree with.
#[test]
fn a_size_of_zero_does_not_hide_an_overflow() {
    let empty = TensorData::new(Vec::<f32>::new(), [0]);
    let found = message(load(&[
        ("bias_indices", TensorData::new(Vec::<i64>::new(), [3, 0])),
        ("bias_values", empty),
        ("bias_size", TensorData::from([0_i64, 1 << 40, 1 << 40])),
    ]));
    let expected = "layer `layer`: `bias_size` is [0, 1099511627776, 1099511627776], expected 1 to 8 sizes above 0 of a \
                    tensor; is the file damaged?";
    assert_eq!(found, expected);
}

#[test]
fn all_three_or_none() {
    let patch = load(&[
        ("lora_up.weight", wave(&[6, 4], 1)),
        ("lora_down.weight", wave(&[4, 5], 2)),
        ("bias_indices", ints(&[0], [1, 1])),
        ("bias_size", TensorData::from([6_i64])),
    ]);
    assert_eq!(
        message(patch),
        "layer `layer`: tensor `bias_values` is missing; is the file complete?"
    );
}

#[test]
fn values_that_are_not_finite_are_refused() {
    let values = TensorData::from([1.0_f32, f32::NAN]);
    let found = message(patch_with(ints(&[5, 0], [1, 2]), values, &[6]));
    assert!(
        found.starts_with(
            "layer `layer`: tensor `bias_values` has NaN at element 1, expected finite"
        ),
        "{found}"
    );
}

/// Kinds with a scale of their own scale the triple alike; others, and the triple alone, take it as it stands.
#[test]
fn beside_other_kinds_and_alone() {
    let loha: Tensors = vec![
        ("hada_w1_a", wave(&[6, 2], 1)),
        ("hada_w1_b", wave(&[2, 5], 2)),
        ("hada_w2_a", wave(&[6, 2], 3)),
        ("hada_w2_b", wave(&[2, 5], 4)),
        ("alpha", scalar(1.0)),
    ];
    let lokr = vec![
        ("lokr_w1", wave(&[3, 1], 1)),
        ("lokr_w2_a", wave(&[2, 2], 2)),
        ("lokr_w2_b", wave(&[2, 5], 3)),
        ("alpha", scalar(1.0)),
    ];
    let full = vec![("diff", wave(&[6, 5], 1))];
    let mut dense = vec![0.0_f32; 30];
    (dense[4], dense[26]) = (1.0, 2.0);
    let dense = matrix(TensorData::new(dense, [6, 5]));
    let row = matrix(TensorData::from([[1.0_f32, 0.0, 0.0, 0.0, 0.0, 2.0]])).reshape([6]);
    let layer = LayerShape::linear(6, 5);
    for (tensors, scale) in [(loha, 0.5), (lokr, 0.5), (full, 1.0), (vec![], 1.0)] {
        let values = || ("bias_values", TensorData::from([1.0_f32, 2.0]));
        let on_weight = [
            tensors.clone(),
            vec![
                ("bias_indices", ints(&[0, 5, 4, 1], [2, 2])),
                values(),
                ("bias_size", TensorData::from([6_i64, 5])),
            ],
        ];
        let patch = load(&on_weight.concat()).expect("a patch");
        let further = dense.clone().mul_scalar(scale);
        let expected = match tensors.is_empty() {
            true => further,
            false => delta(load(&tensors).expect("a patch").as_ref(), [6, 5]) + further,
        };
        assert_close(delta(patch.as_ref(), [6, 5]), expected.clone(), 1e-6);
        let rows = overglaze_patches::slice_rows(&patch, 4..6);
        assert_close(
            delta(rows.as_ref(), [2, 5]),
            expected.slice_dim(0, 4..6),
            1e-6,
        );
        let on_bias = [
            tensors,
            vec![
                ("bias_indices", ints(&[0, 5], [1, 2])),
                values(),
                ("bias_size", TensorData::from([6_i64])),
            ],
        ];
        let patch = load(&on_bias.concat()).expect("a patch");
        let expected = row.clone().mul_scalar(scale);
        let found = delta_bias(patch.as_ref(), &layer).expect("a bias");
        assert_close(found, expected.clone(), 0.0);
        let rows = overglaze_patches::slice_rows(&patch, 4..6);
        let found = delta_bias(rows.as_ref(), &LayerShape::linear(2, 5)).expect("a bias");
        assert_close(found, expected.slice_dim(0, 4..6), 0.0);
    }
}

/// The size in the file is not believed before a layer of that size is there.
#[test]
fn a_size_beyond_memory_is_refused_by_the_layer() {
    let huge = 1_i64 << 40;
    let patch = load(&[
        ("bias_indices", ints(&[0], [1, 1])),
        ("bias_values", TensorData::from([1.0_f32])),
        ("bias_size", TensorData::from([huge])),
    ]);
    let expected =
        format!("the sparse-bias patch is for a weight of shape [{huge}, 5], the layer has [6, 5]");
    let found = message(patch.expect("a patch").check(&LayerShape::linear(6, 5)));
    assert_eq!(found, expected);
}
