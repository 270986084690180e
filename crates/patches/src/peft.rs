//! PEFT's adapter configuration, as far as it changes numbers.
//!
//! It stands in `adapter_config.json`, or in a safetensors file's metadata under
//! `lora_adapter_metadata`, as JSON whose keys start with the component's name (`transformer.r`).
//! Files with such a configuration carry no alpha of their own: scale = `lora_alpha / rank`, or
//! `lora_alpha / sqrt(rank)` with `use_rslora` (Kalajdzievski 2023).

use std::{collections::HashMap, fmt};

use regex_lite::Regex;
use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::Value;

use crate::PatchError;

/// A PEFT adapter configuration.
#[derive(Clone, Debug)]
pub struct AdapterConfig {
    peft_type: Option<String>,
    alpha: Option<f64>,
    alpha_pattern: Vec<(Regex, f64)>,
    use_rslora: bool,
}

impl AdapterConfig {
    /// Reads the text of an `adapter_config.json`.
    ///
    /// # Errors
    /// [`PatchError::ConfigJson`], [`PatchError::ConfigPattern`], or
    /// [`PatchError::UnsupportedConfig`] for adapters that are only valid on a base that was changed.
    pub fn from_json(text: &str) -> Result<Self, PatchError> {
        let raw = serde_json::from_str(text).map_err(|source| PatchError::ConfigJson { source })?;
        Self::from_raw(raw)
    }

    /// Reads a safetensors file's metadata; `None` when it holds no configuration.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json).
    pub fn from_metadata(metadata: &HashMap<String, String>) -> Result<Option<Self>, PatchError> {
        let Some(text) = metadata.get(METADATA_KEY) else {
            return Ok(None);
        };
        Self::from_json(text).map(Some)
    }

    /// Kind of adapter the file was saved as, e.g. `LORA`.
    #[must_use]
    pub fn peft_type(&self) -> Option<&str> {
        self.peft_type.as_deref()
    }

    /// The alpha that makes `alpha / rank` the scale of the layer `target` (dotted path);
    /// `None` when the configuration does not give one.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "scales are f32 everywhere else"
    )]
    pub fn effective_alpha(&self, target: &str, rank: usize) -> Option<f32> {
        let listed = self
            .alpha_pattern
            .iter()
            .find(|(pattern, _)| pattern.is_match(target));
        let alpha = listed.map(|(_, alpha)| *alpha).or(self.alpha)?;
        let factor = if self.use_rslora {
            (rank as f64).sqrt()
        } else {
            1.0
        };
        Some((alpha * factor) as f32)
    }

    fn from_raw(raw: RawConfig) -> Result<Self, PatchError> {
        raw.check()?;
        let alpha_pattern = raw.alpha_pattern.unwrap_or_default().0;
        Ok(Self {
            peft_type: raw.peft_type,
            alpha: raw.lora_alpha,
            alpha_pattern: alpha_pattern
                .into_iter()
                .map(compiled)
                .collect::<Result<_, _>>()?,
            use_rslora: raw.use_rslora.unwrap_or(false),
        })
    }
}

fn compiled((key, alpha): (String, f64)) -> Result<(Regex, f64), PatchError> {
    // PEFT matches a module's path against the key as a whole name at its end.
    let pattern = Regex::new(&format!("^(?:.*\\.)?(?:{key})$"));
    let pattern = pattern.map_err(|source| PatchError::ConfigPattern {
        pattern: key,
        source,
    })?;
    Ok((pattern, alpha))
}

/// The fields as they stand in the file; a saved configuration writes `null` for what is unset.
#[derive(Deserialize)]
struct RawConfig {
    #[serde(alias = "transformer.peft_type")]
    peft_type: Option<String>,
    #[serde(
        alias = "alpha",
        alias = "transformer.lora_alpha",
        alias = "transformer.alpha"
    )]
    lora_alpha: Option<f64>,
    #[serde(alias = "transformer.alpha_pattern")]
    alpha_pattern: Option<Patterns>,
    #[serde(alias = "transformer.use_rslora")]
    use_rslora: Option<bool>,
    #[serde(alias = "transformer.init_lora_weights")]
    init_lora_weights: Option<Value>,
    #[serde(alias = "transformer.layer_replication")]
    layer_replication: Option<Value>,
    #[serde(alias = "transformer.trainable_token_indices")]
    trainable_token_indices: Option<Value>,
    #[serde(alias = "transformer.alora_invocation_tokens")]
    alora_invocation_tokens: Option<Value>,
}

impl RawConfig {
    /// Refuses what no residual on the original base can express.
    fn check(&self) -> Result<(), PatchError> {
        if let Some(Value::String(init)) = &self.init_lora_weights
            && CHANGES_BASE.iter().any(|name| init.starts_with(name))
        {
            return Err(unsupported(
                "init_lora_weights",
                &Value::from(init.as_str()),
                CONVERT,
            ));
        }
        let refused = [
            (
                "layer_replication",
                &self.layer_replication,
                "it changes the model's depth",
            ),
            (
                "trainable_token_indices",
                &self.trainable_token_indices,
                "it replaces embeddings",
            ),
            (
                "alora_invocation_tokens",
                &self.alora_invocation_tokens,
                "it acts on some tokens only",
            ),
        ];
        for (field, value, why) in refused {
            if let Some(value) = value {
                return Err(unsupported(field, value, why));
            }
        }
        Ok(())
    }
}

fn unsupported(field: &'static str, found: &Value, why: &'static str) -> PatchError {
    PatchError::UnsupportedConfig {
        field,
        found: found.to_string(),
        why,
    }
}

/// Pattern to alpha, in the file's order: the first match counts.
#[derive(Default)]
struct Patterns(Vec<(String, f64)>);

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PatternsVisitor)
    }
}

struct PatternsVisitor;

impl<'de> Visitor<'de> for PatternsVisitor {
    type Value = Patterns;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of numbers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Patterns, A::Error> {
        let mut patterns = Vec::new();
        while let Some(entry) = map.next_entry()? {
            patterns.push(entry);
        }
        Ok(Patterns(patterns))
    }
}

const METADATA_KEY: &str = "lora_adapter_metadata";
/// Initialisations that move a part of the base weight into the factors.
const CHANGES_BASE: [&str; 5] = ["pissa", "olora", "corda", "loftq", "lora_ga"];
const CONVERT: &str = "its factors fit a base that was changed in training; save it with \
                       `path_initial_model_for_weight_conversion` to convert it";
