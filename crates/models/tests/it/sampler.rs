//! The Euler sampler.

use burn::tensor::Tensor;
use overglaze_models::{
    Conditioning, FluxModel, ModelError, PositionIds, SampleOptions, Sigmas, sample,
};

use crate::golden;

fn conditioning(guidance: Option<Vec<f32>>) -> Conditioning {
    let inputs = golden::inputs();
    let (text, pooled) = (inputs.encoder_hidden_states, inputs.pooled_projections);
    Conditioning::new(text, pooled, guidance).unwrap()
}

fn options(sigmas: &[f32], guidance: Option<f32>) -> SampleOptions {
    SampleOptions {
        sigmas: Sigmas::from_values(sigmas.to_vec()).unwrap(),
        guidance,
        img_ids: PositionIds::image(3, 4).unwrap(),
    }
}

fn run(
    model: &FluxModel,
    conditioning: &Conditioning,
    options: &SampleOptions,
) -> Result<Vec<f32>, ModelError> {
    let noise = golden::inputs().hidden_states;
    let sampled: Tensor<3> = sample(
        &model.transformer,
        noise,
        conditioning,
        options,
        &mut |_, _| {},
    )?;
    Ok(golden::values(sampled))
}

/// One step is `x + (σ′ − σ)·v`, and two steps are one after the other.
#[test]
fn a_step_follows_the_velocity() {
    let model = golden::model("diffusers");
    let mut inputs = golden::inputs();
    inputs.timestep = vec![0.75; 2];
    inputs.guidance = Some(vec![3.5; 2]);
    let velocity = model.transformer.forward(inputs.clone()).unwrap();
    let expected = golden::values(inputs.hidden_states + velocity * -0.5);
    let found = run(
        &model,
        &conditioning(None),
        &options(&[0.75, 0.25], Some(3.5)),
    )
    .unwrap();
    assert!(expected.iter().any(|value| value.abs() > 0.1));
    assert_eq!(found, expected);
}

#[test]
fn the_given_guidance_goes_before_the_conditioning() {
    let model = golden::model("diffusers");
    let from_file = conditioning(Some(vec![2.0, 2.0]));
    let steps = [1.0, 0.5, 0.0];
    let given = run(&model, &from_file, &options(&steps, Some(4.0))).unwrap();
    let same = run(&model, &conditioning(None), &options(&steps, Some(4.0))).unwrap();
    let file_only = run(&model, &from_file, &options(&steps, None)).unwrap();
    assert_eq!(given, same);
    assert_ne!(given, file_only);
    let message = run(&model, &conditioning(None), &options(&steps, None))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("embeds guidance, but none was given"),
        "{message}"
    );
}

#[test]
fn progress_counts_the_steps() {
    let model = golden::model("diffusers");
    let mut seen = Vec::new();
    let options = options(&[1.0, 0.6, 0.3, 0.0], Some(1.0));
    let noise = golden::inputs().hidden_states;
    let mut progress = |step, total| seen.push((step, total));
    sample(
        &model.transformer,
        noise,
        &conditioning(None),
        &options,
        &mut progress,
    )
    .unwrap();
    assert_eq!(seen, [(0, 3), (1, 3), (2, 3), (3, 3)]);
}

/// The demo's checkpoint has no guidance embedding: guidance is then of no use, and not embedded.
#[test]
fn a_model_without_guidance_embedding_takes_none() {
    let without = |name: &str, shape: &[usize]| {
        (!name.contains("guidance_embedder")).then(|| (name.to_owned(), shape.to_vec()))
    };
    let mut load = golden::options();
    load.config.as_mut().unwrap().guidance_embeds = Some(false);
    let model = FluxModel::load(golden::edited("diffusers", without), load).unwrap();
    let steps = [1.0, 0.0];
    let with = run(&model, &conditioning(None), &options(&steps, Some(4.0))).unwrap();
    assert_eq!(
        with,
        run(&model, &conditioning(None), &options(&steps, None)).unwrap()
    );
    let error = model
        .transformer
        .forward(golden::inputs())
        .map(|_| ())
        .unwrap_err();
    assert!(
        error.to_string().contains("has no guidance embedding"),
        "{error}"
    );
}

#[test]
fn a_model_that_needs_a_control_image_is_refused() {
    let wider = |name: &str, shape: &[usize]| {
        let is_input = name == "x_embedder.weight";
        Some((
            name.to_owned(),
            if is_input {
                vec![64, 32]
            } else {
                shape.to_vec()
            },
        ))
    };
    let mut load = golden::options();
    let config = load.config.as_mut().unwrap();
    (config.in_channels, config.out_channels) = (Some(32), Some(16));
    let model = FluxModel::load(golden::edited("diffusers", wider), load).unwrap();
    let error = run(
        &model,
        &conditioning(None),
        &options(&[1.0, 0.0], Some(1.0)),
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("takes 32 channels and returns 16"),
        "{error}"
    );
}
