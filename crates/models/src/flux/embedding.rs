//! The conditioning vector: `c = MLP(sin(1000 t)) [+ MLP(sin(1000 g))] + MLP(pooled)`.
//!
//! The sinusoidal embedding of v is `[cos(v·f₀) … cos(v·f₁₂₇), sin(v·f₀) … sin(v·f₁₂₇)]` with
//! `fᵢ = 10000^(−i/128)`. Origin: diffusers `get_timestep_embedding` with `flip_sin_to_cos`.

use burn::tensor::{DType, Device, Tensor, TensorData, activation::silu};
use overglaze_core::PatchedLinear;

use crate::{
    ModelError,
    flux::{
        FluxInputs,
        layers::{Named, visit_fields},
        map::TIME_WIDTH,
    },
    rounded,
};

/// The three embeddings that are added up.
#[derive(Clone, Debug)]
pub(crate) struct Conditioner {
    pub(crate) time: Embedder,
    pub(crate) guidance: Option<Embedder>,
    pub(crate) pooled: Embedder,
}

visit_fields!(Conditioner {
    time,
    guidance,
    pooled
});

impl Conditioner {
    /// The conditioning `[batch, inner]` of checked inputs, already activated: every use of it
    /// begins with `silu`.
    pub(crate) fn forward(&self, inputs: &FluxInputs) -> Result<Tensor<2>, ModelError> {
        let device = inputs.hidden_states.device();
        let mut sum = self.time.forward(sinusoids(&inputs.timestep, &device))?;
        if let (Some(embedder), Some(guidance)) = (&self.guidance, &inputs.guidance) {
            sum = sum + embedder.forward(sinusoids(guidance, &device))?;
        }
        let pooled = self.pooled.forward(inputs.pooled_projections.clone())?;
        Ok(silu(sum + pooled))
    }
}

/// A perceptron `W₂·silu(W₁·x)`.
#[derive(Clone, Debug)]
pub(crate) struct Embedder {
    pub(crate) first: Named<PatchedLinear>,
    pub(crate) second: Named<PatchedLinear>,
}

visit_fields!(Embedder { first, second });

impl Embedder {
    fn forward(&self, input: Tensor<2>) -> Result<Tensor<2>, ModelError> {
        let hidden = silu(self.first.layer.try_forward(input)?);
        Ok(self.second.layer.try_forward(hidden)?)
    }
}

/// The embeddings `[batch, 256]` of the values times 1000.
///
/// Computed on the host: the angles reach 1000, where a device's fast sine is not exact, and the
/// result is the same whatever the device.
fn sinusoids(values: &[f32], device: &Device) -> Tensor<2> {
    let mut embedded = Vec::with_capacity(values.len() * TIME_WIDTH);
    for value in values {
        let angles = frequencies().map(|frequency| f64::from(value * TIME_SCALE * frequency));
        embedded.extend(angles.clone().map(|angle| rounded(angle.cos())));
        embedded.extend(angles.map(|angle| rounded(angle.sin())));
    }
    let data = TensorData::new(embedded, [values.len(), TIME_WIDTH]);
    Tensor::from_data(data, (device, DType::F32))
}

/// The frequencies, rounded to f32 where the reference rounds.
fn frequencies() -> impl Iterator<Item = f32> + Clone {
    let log_period = rounded(-MAX_PERIOD.ln());
    (0..NUM_FREQUENCIES).map(move |index| {
        let exponent = log_period * f32::from(index) / f32::from(NUM_FREQUENCIES);
        rounded(f64::from(exponent).exp())
    })
}

/// The model takes times in 0 to 1 and embeds them in 0 to 1000.
const TIME_SCALE: f32 = 1000.0;

const MAX_PERIOD: f64 = 10_000.0;

const NUM_FREQUENCIES: u16 = 128;
