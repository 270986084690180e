//! A control adapter on the image input of FLUX: more channels while it is mounted, and not longer.

use burn::tensor::{Device, Tensor, TensorData};
use overglaze_core::{LayerTree, mount, reweight, unmount};
use overglaze_models::{FluxInputs, FluxTransformer};
use overglaze_patches::PatchSet;

use crate::golden::{self, CHECKPOINTS};

const CHANNELS: usize = 16;
const WIDE: usize = 32;
const RANK: usize = 2;

/// Numbers below 0.3 that differ by `seed`.
fn wave(shape: [usize; 2], seed: usize) -> TensorData {
    let values =
        (0..shape[0] * shape[1]).map(|i| ((i * 7 + seed * 13 + 1) as f32 * 0.37).sin() * 0.3);
    TensorData::new(values.collect::<Vec<_>>(), shape)
}

/// Rows of the image input layer.
fn inner(model: &FluxTransformer, path: &str) -> usize {
    let mut rows = None;
    model.visit_layers(&mut |name, layer| {
        if name == path {
            rows = Some(layer.weight_shape()[0]);
        }
    });
    rows.unwrap()
}

/// An adapter of the image input layer whose `down` is `[RANK, columns]`.
fn adapter(inner: usize, down: TensorData) -> PatchSet {
    let tensors = [
        (
            "transformer.x_embedder.lora_B.weight",
            wave([inner, RANK], 1),
        ),
        ("transformer.x_embedder.lora_A.weight", down),
    ];
    let tensors = tensors.map(|(key, data)| (key.to_owned(), data));
    PatchSet::from_tensors("adapter", tensors, None, &Device::flex()).unwrap()
}

fn widened(extra: Tensor<3>) -> FluxInputs {
    let mut inputs = golden::inputs();
    inputs.hidden_states = Tensor::cat(vec![inputs.hidden_states, extra], 2);
    inputs
}

fn run(model: &FluxTransformer, inputs: FluxInputs) -> Vec<f32> {
    golden::values(model.forward(inputs).unwrap())
}

#[test]
fn a_control_adapter_beside_an_ordinary_one_widens_the_image_tokens() {
    let [batch, tokens, _] = golden::inputs().hidden_states.dims();
    let zeros = Tensor::zeros([batch, tokens, WIDE - CHANNELS], &Device::flex());
    let ones = Tensor::ones_like(&zeros);
    for (checkpoint, path) in CHECKPOINTS.into_iter().zip(["x_embedder", "img_in"]) {
        let mut model = golden::model(checkpoint).transformer;
        let inner = inner(&model, path);
        let base = run(&model, golden::inputs());
        let down = wave([RANK, WIDE], 5);
        let narrow: Tensor<2> = Tensor::from_data(down.clone(), &Device::flex());
        let narrow = narrow.slice([0..RANK, 0..CHANNELS]).into_data();
        let (control, own) = (adapter(inner, down), adapter(inner, narrow));
        let ordinary = adapter(inner, wave([RANK, CHANNELS], 9));

        // What the control adapter makes of its first columns alone, beside the ordinary one.
        mount(&mut model, "ordinary", &ordinary, 0.7).unwrap();
        mount(&mut model, "own", &own, 0.5).unwrap();
        let expected = run(&model, golden::inputs());
        unmount(&mut model, "own").unwrap();
        assert_eq!(model.in_channels(), CHANNELS);

        mount(&mut model, "control", &control, 0.5).unwrap();
        assert_eq!(model.in_channels(), WIDE);
        let found = run(&model, widened(zeros.clone()));
        for (found, expected) in found.iter().zip(&expected) {
            // f32 sums in another order, four blocks deep.
            assert!(
                (found - expected).abs() < 1e-4,
                "{found}, expected {expected}"
            );
        }
        assert!(
            found
                .iter()
                .zip(&base)
                .any(|(found, base)| (found - base).abs() > 1e-2)
        );
        let controlled = run(&model, widened(ones.clone()));
        assert!(
            controlled
                .iter()
                .zip(&found)
                .any(|(a, b)| (a - b).abs() > 1e-2)
        );
        let message = model.forward(golden::inputs()).unwrap_err().to_string();
        let expected = format!("[{batch}, {tokens}, 16], expected [{batch}, {tokens}, 32]");
        assert!(message.contains(&expected), "{message}");

        reweight(&mut model, "control", 0.0).unwrap();
        assert_eq!(model.in_channels(), CHANNELS);
        unmount(&mut model, "control").unwrap();
        unmount(&mut model, "ordinary").unwrap();
        assert_eq!(run(&model, golden::inputs()), base, "bit for bit");
        let message = model
            .forward(widened(zeros.clone()))
            .unwrap_err()
            .to_string();
        let expected = format!("[{batch}, {tokens}, 32], expected [{batch}, {tokens}, 16]");
        assert!(message.contains(&expected), "{message}");
    }
}
