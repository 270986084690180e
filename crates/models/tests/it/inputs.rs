//! Inputs that do not fit are errors that say what was found and expected.

use burn::tensor::{Device, Tensor};
use overglaze_models::{FluxInputs, PositionIds};

use crate::golden;

fn zeros<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::zeros(shape, &Device::flex())
}

type Change = fn(&mut FluxInputs);

fn assert_refused(cases: &[(&str, Change)]) {
    let model = golden::model("diffusers").transformer;
    for (expected, change) in cases {
        let mut inputs = golden::inputs();
        change(&mut inputs);
        let message = model.forward(inputs).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused() {
    let cases: [(&str, Change); 8] = [
        (
            "`hidden_states` has shape [2, 12, 4], expected [2, 12, 16]",
            |inputs| {
                inputs.hidden_states = zeros([2, 12, 4]);
            },
        ),
        (
            "`hidden_states` has shape [0, 12, 16], expected at least one row and token",
            |inputs| {
                inputs.hidden_states = zeros([0, 12, 16]);
            },
        ),
        (
            "`encoder_hidden_states` has shape [2, 0, 32], expected at least one row",
            |inputs| {
                inputs.encoder_hidden_states = zeros([2, 0, 32]);
            },
        ),
        (
            "`encoder_hidden_states` has shape [2, 5, 64], expected [2, 5, 32]",
            |inputs| {
                inputs.encoder_hidden_states = zeros([2, 5, 64]);
            },
        ),
        (
            "`encoder_hidden_states` has shape [1, 5, 32], expected [2, 5, 32]",
            |inputs| {
                inputs.encoder_hidden_states = zeros([1, 5, 32]);
            },
        ),
        (
            "`pooled_projections` has shape [2, 8], expected [2, 16]",
            |inputs| {
                inputs.pooled_projections = zeros([2, 8]);
            },
        ),
        ("`img_ids` has shape [11, 3], expected [12, 3]", |inputs| {
            inputs.img_ids = PositionIds::zeros(11);
        }),
        ("`txt_ids` has shape [4, 3], expected [5, 3]", |inputs| {
            inputs.txt_ids = PositionIds::zeros(4);
        }),
    ];
    assert_refused(&cases);
}

#[test]
fn values_of_rows_that_do_not_fit_are_refused() {
    let cases: [(&str, Change); 5] = [
        ("`timestep` has shape [1], expected [2]", |inputs| {
            inputs.timestep = vec![0.5];
        }),
        ("`timestep` holds NaN, expected finite numbers", |inputs| {
            inputs.timestep[1] = f32::NAN;
        }),
        ("`guidance` has shape [3], expected [2]", |inputs| {
            inputs.guidance = Some(vec![1.0; 3]);
        }),
        ("`guidance` holds inf", |inputs| {
            inputs.guidance = Some(vec![f32::INFINITY; 2]);
        }),
        ("embeds guidance, but none was given", |inputs| {
            inputs.guidance = None;
        }),
    ];
    assert_refused(&cases);
}

#[test]
fn image_positions_run_row_by_row() {
    let ids = PositionIds::image(2, 3).unwrap();
    let expected: Vec<[f32; 3]> = [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
        .map(|[r, c]| [0.0, r as f32, c as f32])
        .into();
    assert_eq!(ids.as_slice(), expected);
    assert_eq!((ids.len(), ids.is_empty()), (6, false));
    for (height, width) in [(0, 5), (5, 0), (usize::MAX, 2), (1 << 11, 1 << 10)] {
        let message = PositionIds::image(height, width).unwrap_err().to_string();
        assert!(
            message.contains("expected 1 to 1,048,576 tokens"),
            "{message}"
        );
    }
}

#[test]
fn positions_must_be_finite_triples() {
    let message = PositionIds::new(vec![[0.0, f32::NAN, 0.0]])
        .unwrap_err()
        .to_string();
    assert_eq!(
        message,
        "input `position ids` holds NaN, expected finite numbers"
    );
    let message = PositionIds::from_tensor(zeros([4, 2]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        message,
        "input `position ids` has shape [4, 2], expected [tokens, 3]"
    );
}
