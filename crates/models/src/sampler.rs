//! The rectified-flow Euler sampler: `x += (σ′ − σ)·v(x, σ)`.

use burn::tensor::{DType, Tensor};

use crate::{
    Conditioning, ModelError, Sigmas,
    flux::{FluxInputs, FluxTransformer, PositionIds},
};

/// What a run is sampled with.
#[derive(Clone, Debug)]
pub struct SampleOptions {
    /// The noise levels.
    pub sigmas: Sigmas,
    /// Guidance for every prompt; it goes before the conditioning's own. A model without guidance
    /// embedding uses neither.
    pub guidance: Option<f32>,
    /// Positions of the image tokens.
    pub img_ids: PositionIds,
}

/// The image tokens `[prompts, tokens, channels]` that `noise`, of the same shape, flows to.
///
/// `progress` is called with the number of steps done and of all steps, first with none done.
///
/// # Errors
/// As [`FluxTransformer::forward`]; [`ModelError::NotASampler`] for a model that needs more than
/// noise.
pub fn sample(
    model: &FluxTransformer,
    noise: Tensor<3>,
    conditioning: &Conditioning,
    options: &SampleOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Tensor<3>, ModelError> {
    let (in_channels, out_channels) = (model.in_channels(), model.config().out_channels);
    if in_channels != out_channels {
        return Err(ModelError::NotASampler {
            in_channels,
            out_channels,
        });
    }
    let mut inputs = first_inputs(model, noise, conditioning, options);
    let num_steps = options.sigmas.num_steps();
    progress(0, num_steps);
    for (step, levels) in options.sigmas.as_slice().windows(2).enumerate() {
        inputs.timestep.fill(levels[0]);
        let velocity = model.forward(inputs.clone())?;
        inputs.hidden_states = inputs.hidden_states + velocity * (levels[1] - levels[0]);
        progress(step + 1, num_steps);
    }
    Ok(inputs.hidden_states)
}

/// The inputs of the first step; the time of each is still open.
fn first_inputs(
    model: &FluxTransformer,
    noise: Tensor<3>,
    conditioning: &Conditioning,
    options: &SampleOptions,
) -> FluxInputs {
    let [batch, ..] = noise.dims();
    let encoder_hidden_states = conditioning.encoder_hidden_states().clone();
    let [_, text_tokens, _] = encoder_hidden_states.dims();
    let given = options.guidance.map(|guidance| vec![guidance; batch]);
    let guidance = given.or_else(|| conditioning.guidance().map(<[f32]>::to_vec));
    FluxInputs {
        hidden_states: noise.cast(DType::F32),
        encoder_hidden_states,
        pooled_projections: conditioning.pooled_projections().clone(),
        timestep: vec![0.0; batch],
        guidance: guidance.filter(|_| model.config().guidance_embeds),
        img_ids: options.img_ids.clone(),
        txt_ids: PositionIds::zeros(text_tokens),
    }
}
