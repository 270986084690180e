//! What is to be said of the layers of an adapter together: read as they stand, they may not be what was trained.
//!
//! PEFT's configuration can announce tensors that a layer lacks (`use_dora`, `lora_bias`), and an alpha of 0 leaves
//! factors without effect.

use crate::{TensorGroup, registry};

/// How many layers there is something to say of.
#[derive(Clone, Copy, Default)]
pub(crate) struct Notes {
    no_magnitude: usize,
    no_bias: usize,
    no_effect: usize,
}

impl Notes {
    /// What there is to say of one layer, from its tensors as the file has them.
    pub(crate) fn of(group: &TensorGroup) -> Self {
        let lacks = |keys: &[&str]| !keys.iter().any(|key| group.has(key));
        let config = group.config.as_ref();
        let is_decomposed = config.is_some_and(|config| config.use_dora);
        let is_biased = config.is_some_and(|config| config.lora_bias);
        let is_embedding = !lacks(EMBEDDING_FACTORS);
        let has_factors = is_embedding || !lacks(FACTORS);
        Self {
            no_magnitude: usize::from(is_decomposed && has_factors && lacks(MAGNITUDES)),
            // PEFT gives embeddings no bias.
            no_bias: usize::from(is_biased && has_factors && !is_embedding && lacks(BIASES)),
            no_effect: usize::from(registry::has_alpha_of_zero(group)),
        }
    }

    /// Counts one layer more.
    pub(crate) fn add(&mut self, layer: Self) {
        self.no_magnitude += layer.no_magnitude;
        self.no_bias += layer.no_bias;
        self.no_effect += layer.no_effect;
    }

    /// The notes, one for each that concerns a layer.
    pub(crate) fn lines(self) -> impl Iterator<Item = String> {
        let [magnitude, bias, effect] =
            [self.no_magnitude, self.no_bias, self.no_effect].map(layers);
        let magnitude = magnitude.map(|[layers, read]| {
            format!(
                "the configuration says use_dora, but {layers} no magnitude: {read} as plain LoRA"
            )
        });
        let bias = bias.map(|[layers, read]| {
            format!("the configuration says lora_bias, but {layers} no bias: {read} without one")
        });
        let effect =
            effect.map(|[layers, _]| format!("{layers} an alpha of 0: the factors add nothing"));
        [magnitude, bias, effect].into_iter().flatten()
    }
}

/// `count` layers as a subject and its verb, and how they are spoken of next; `None` for none.
fn layers(count: usize) -> Option<[String; 2]> {
    match count {
        0 => None,
        1 => Some(["1 layer has".into(), "it is read".into()]),
        _ => Some([format!("{count} layers have"), "they are read".into()]),
    }
}

const FACTORS: &[&str] = &["lora_up.weight"];
const EMBEDDING_FACTORS: &[&str] = &["lora_embedding_B"];
const MAGNITUDES: &[&str] = &["lora_magnitude_vector", "dora_scale"];
const BIASES: &[&str] = &["lora_up.bias"];
