//! What is to be said of the layers of an adapter together: read as they stand, they may not be what was trained.
//!
//! PEFT's configuration can announce tensors that a layer lacks (`use_dora`, `lora_bias`), and an alpha of 0 leaves
//! factors without effect. Factors without any alpha are taken at the scale 1, and keys count where the configuration
//! names another kind.

use std::collections::BTreeSet;

use crate::{TensorGroup, registry};

/// How many layers there is something to say of.
#[derive(Clone, Default)]
pub(crate) struct Notes {
    /// Without an alpha, in a PEFT folder's spelling and without a configuration.
    no_config: usize,
    /// Without an alpha, in the file or its configuration.
    no_alpha: usize,
    /// What the configuration calls them, where their keys are another kind's.
    other_types: BTreeSet<String>,
    no_magnitude: usize,
    no_bias: usize,
    no_effect: usize,
}

impl Notes {
    /// What there is to say of one layer, from its tensors as the file has them under `keys`.
    pub(crate) fn of(group: &TensorGroup, keys: &[String]) -> Self {
        let lacks = |keys: &[&str]| !keys.iter().any(|key| group.has(key));
        let config = group.config.as_ref();
        let is_decomposed = config.is_some_and(|config| config.use_dora);
        let is_biased = config.is_some_and(|config| config.lora_bias);
        let is_embedding = !lacks(EMBEDDING_FACTORS);
        let has_factors = is_embedding || !lacks(FACTORS);
        let lacks_scale = registry::lacks_scale(group);
        let is_silent = config.is_some_and(|config| config.alpha.is_none());
        let is_peft_folder = keys.iter().any(|key| key.contains(WRAPPED));
        Self {
            no_config: usize::from(lacks_scale && config.is_none() && is_peft_folder),
            no_alpha: usize::from(lacks_scale && is_silent),
            other_types: other_type(group).into_iter().collect(),
            no_magnitude: usize::from(is_decomposed && has_factors && lacks(MAGNITUDES)),
            // PEFT gives embeddings no bias.
            no_bias: usize::from(is_biased && has_factors && !is_embedding && lacks(BIASES)),
            no_effect: usize::from(registry::has_alpha_of_zero(group)),
        }
    }

    /// Counts one layer more.
    pub(crate) fn add(&mut self, layer: Self) {
        self.no_config += layer.no_config;
        self.no_alpha += layer.no_alpha;
        self.other_types.extend(layer.other_types);
        self.no_magnitude += layer.no_magnitude;
        self.no_bias += layer.no_bias;
        self.no_effect += layer.no_effect;
    }

    /// The notes, one for each that concerns a layer.
    pub(crate) fn lines(self) -> impl Iterator<Item = String> {
        let [magnitude, bias, effect] =
            [self.no_magnitude, self.no_bias, self.no_effect].map(layers);
        let [config, alpha] = [self.no_config, self.no_alpha].map(layers);
        let config = config.map(|[layers, _]| {
            format!(
                "{layers} no alpha and there is no adapter_config.json: the scale alpha / rank is taken as 1"
            )
        });
        let alpha = alpha.map(|[layers, _]| {
            format!(
                "the configuration has no lora_alpha and {layers} no alpha: the scale alpha / rank is taken as 1"
            )
        });
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
        let counted = [config, alpha, magnitude, bias, effect];
        self.other_types
            .into_iter()
            .chain(counted.into_iter().flatten())
    }
}

/// That the configuration calls the layer another kind than its keys are.
fn other_type(group: &TensorGroup) -> Option<String> {
    let peft_type = group.config.as_ref()?.peft_type.as_ref()?;
    let kinds = registry::kinds_of_other_type(group, peft_type);
    let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
    (!names.is_empty()).then(|| {
        let names = names.join(" and ");
        format!("the configuration says peft_type {peft_type}, but the keys are those of {names}: they are read as {names}")
    })
}

/// `count` layers as a subject and its verb, and how they are spoken of next; `None` for none.
fn layers(count: usize) -> Option<[String; 2]> {
    match count {
        0 => None,
        1 => Some(["1 layer has".into(), "it is read".into()]),
        _ => Some([format!("{count} layers have"), "they are read".into()]),
    }
}

/// In the keys that PEFT saves with a configuration beside them.
const WRAPPED: &str = "base_model.model.";
const FACTORS: &[&str] = &["lora_up.weight"];
const EMBEDDING_FACTORS: &[&str] = &["lora_embedding_B"];
const MAGNITUDES: &[&str] = &["lora_magnitude_vector", "dora_scale"];
const BIASES: &[&str] = &["lora_up.bias"];
