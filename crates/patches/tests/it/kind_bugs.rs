//! Mistakes that other programs have made with these kinds; each test is named after the row of the project's
//! list of them.

use burn::tensor::{DType, Tensor, TensorData};
use overglaze_patches::{AdapterConfig, LayerShape, PatchSet, slice_rows};

use crate::fixtures::{
    assert_close, cast, delta, delta_on, device, load, matrix, message, refusal, scalar, sidecar,
    wave,
};

/// Sums of at most 24 products of numbers below 1, in f32.
const TOLERANCE: f32 = 1e-5;

fn product(d_output: usize, rank: usize, fan_in: usize) -> Tensor<2> {
    matrix(wave(&[d_output, rank], 1)).matmul(matrix(wave(&[rank, fan_in], 2)))
}

fn pair(path: &str, rank: usize, alpha: f32) -> Vec<(String, TensorData)> {
    vec![
        (format!("{path}.lora_A.weight"), wave(&[rank, 5], 2)),
        (format!("{path}.lora_B.weight"), wave(&[6, rank], 1)),
        (format!("{path}.alpha"), scalar(alpha)),
    ]
}

#[test]
fn b5_alpha_in_a_file_with_dotted_names_counts() {
    let tensors = pair("diffusion_model.blocks.0.q", 8, 4.0);
    let set = PatchSet::from_tensors("file", tensors, None, &device()).expect("an adapter");
    assert_eq!((set.entries.len(), set.num_keys()), (1, 3));
    let found = delta(set.entries[0].patch.as_ref(), [6, 5]);
    assert_close(found, product(6, 8, 5).mul_scalar(0.5), TOLERANCE);
}

#[test]
fn b8_a_block_diagonal_split_is_scaled_by_all_its_rows() {
    // Three parts of rank 4 in one pair of rank 12 whose alpha is that of one part.
    let (mut up, down) = (vec![0.0_f32; 9 * 12], wave(&[12, 5], 2));
    for row in 0..9 {
        for column in 0..4 {
            up[row * 12 + row / 3 * 4 + column] = (row + column + 1) as f32 * 0.1;
        }
    }
    let up = TensorData::new(up, [9, 12]);
    let patch = load(&[
        ("lora_up.weight", up.clone()),
        ("lora_down.weight", down.clone()),
        ("alpha", scalar(4.0)),
    ]);
    let expected = matrix(up).matmul(matrix(down)).mul_scalar(4.0 / 12.0);
    assert_close(
        delta(patch.expect("a patch").as_ref(), [9, 5]),
        expected,
        TOLERANCE,
    );
}

#[test]
fn b10_lokr_sentinel_alpha_is_not_read() {
    let whole = [("lokr_w1", wave(&[3, 2], 1)), ("lokr_w2", wave(&[4, 5], 2))];
    let expected = delta(load(&whole).expect("a patch").as_ref(), [12, 10]);
    for alpha in [
        cast(scalar(f32::INFINITY), DType::F16),
        scalar(9_999_999_999.0),
        scalar(f32::NAN),
        scalar(0.0),
    ] {
        let tensors = [&whole[..], &[("alpha", alpha)]].concat();
        let patch = load(&tensors).expect("a patch");
        assert_close(delta(patch.as_ref(), [12, 10]), expected.clone(), 0.0);
        let output = sidecar(patch.as_ref(), matrix(wave(&[3, 10], 3))).expect("a sidecar");
        let values: Vec<f32> = output.into_data().iter().collect();
        assert!(values.iter().all(|value| value.is_finite()));
    }
}

#[test]
fn b11_lokr_of_rank_one_is_scaled() {
    let factors = [
        ("lokr_w1", wave(&[3, 2], 1)),
        ("lokr_w2_a", wave(&[6, 1], 2)),
        ("lokr_w2_b", wave(&[1, 9], 3)),
    ];
    let plain = delta(load(&factors).expect("a patch").as_ref(), [18, 18]);
    let scaled = load(&[&factors[..], &[("alpha", scalar(0.5))]].concat());
    let found = delta(scaled.expect("a patch").as_ref(), [18, 18]);
    assert_close(found, plain.mul_scalar(0.5), TOLERANCE);
}

#[test]
fn b12_rslora_divides_by_the_root_of_the_rank() {
    let config = AdapterConfig::from_json(
        "c.json".as_ref(),
        r#"{"r": 16, "lora_alpha": 16, "use_rslora": true}"#,
    )
    .expect("a configuration");
    let tensors = pair("base_model.model.a", 16, 0.0).into_iter().take(2);
    let set = PatchSet::from_tensors("file", tensors, Some(&config), &device());
    let set = set.expect("an adapter");
    let found = delta(set.entries[0].patch.as_ref(), [6, 5]);
    // Sums of 16 products of numbers below 1, times 4.
    assert_close(found, product(6, 16, 5).mul_scalar(4.0), 2e-5);
}

#[test]
fn b15_every_layer_has_its_own_alpha() {
    let tensors = [pair("transformer.a", 4, 1.0), pair("transformer.b", 4, 8.0)].concat();
    let set = PatchSet::from_tensors("file", tensors, None, &device()).expect("an adapter");
    for (entry, scale) in set.entries.iter().zip([0.25, 2.0]) {
        let found = delta(entry.patch.as_ref(), [6, 5]);
        assert_close(found, product(6, 4, 5).mul_scalar(scale), TOLERANCE);
    }
    assert_eq!(set.entries.len(), 2);
}

#[test]
fn c9_factors_of_a_linear_layer_and_of_a_1x1_convolution_are_one_thing() {
    let expected = product(6, 4, 5);
    let linear = LayerShape::linear(6, 5);
    let conv = LayerShape::conv(&[6, 5, 1, 1], 1);
    for axes in [&[][..], &[1], &[1, 1], &[1, 1, 1]] {
        let patch = load(&[
            ("lora_up.weight", wave(&[&[6, 4], axes].concat(), 1)),
            ("lora_down.weight", wave(&[&[4, 5], axes].concat(), 2)),
        ])
        .expect("a patch");
        for layer in [&linear, &conv] {
            assert_close(delta_on(patch.as_ref(), layer), expected.clone(), TOLERANCE);
        }
    }
}

#[test]
fn c11_factors_of_a_grouped_convolution_have_the_inputs_of_one_group() {
    let layer = LayerShape::conv(&[8, 2, 3, 3], 4);
    let factors = |d_input: usize| {
        load(&[
            ("lora_up.weight", wave(&[8, 2, 1, 1], 1)),
            ("lora_down.weight", wave(&[2, d_input, 3, 3], 2)),
        ])
        .expect("a patch")
    };
    let found = delta_on(factors(2).as_ref(), &layer);
    assert_close(found, product(8, 2, 18), TOLERANCE);
    let expected = "the lora patch is for a weight of shape [8, 72], the layer has [8, 2, 3, 3]";
    assert_eq!(refusal(factors(8).as_ref(), &layer), expected);
}

/// A rank that three divides is no sign of three blocks.
#[test]
fn c16_a_fused_pair_is_split_by_the_rows_of_up_alone() {
    let patch = load(&[
        ("lora_up.weight", wave(&[9, 12], 1)),
        ("lora_down.weight", wave(&[12, 5], 2)),
        ("alpha", scalar(12.0)),
    ])
    .expect("a patch");
    let whole = product(9, 12, 5);
    for part in 0..3 {
        let rows = 3 * part..3 * (part + 1);
        let cut = slice_rows(&patch, rows.clone());
        let low_rank = cut.low_rank().expect("thin factors");
        assert_eq!(low_rank.down.dims(), [12, 5], "down is shared whole");
        let expected = whole.clone().slice_dim(0, rows);
        assert_close(delta(cut.as_ref(), [3, 5]), expected, TOLERANCE);
    }
}

#[test]
fn c20_an_up_wider_than_down_is_refused() {
    let patch = load(&[
        ("lora_up.weight", wave(&[6, 48], 1)),
        ("lora_down.weight", wave(&[16, 5], 2)),
    ]);
    let expected = "layer `layer`: `lora_up.weight` has 48 columns and `lora_down.weight` has 16 rows, expected as \
                    many or a multiple";
    assert_eq!(message(patch), expected);
}

#[test]
fn c22_a_kronecker_product_that_is_not_the_layer_is_refused() {
    let patch = load(&[
        ("lokr_w1", wave(&[64, 8], 1)),
        ("lokr_w2", wave(&[8, 64], 2)),
    ]);
    let patch = patch.expect("a patch");
    let expected = "the lokr patch is for a weight of shape [512, 512], the layer has [64, 64]";
    assert_eq!(
        refusal(patch.as_ref(), &LayerShape::linear(64, 64)),
        expected
    );
    // As many elements in other rows are another weight too.
    let expected = "the lokr patch is for a weight of shape [512, 512], the layer has [256, 1024]";
    assert_eq!(
        refusal(patch.as_ref(), &LayerShape::linear(256, 1024)),
        expected
    );
}
