//! PEFT's adapter configuration, as far as it changes numbers.
//!
//! It stands in `adapter_config.json`, or in a safetensors file's metadata under
//! `lora_adapter_metadata`, as JSON whose keys start with the component's name (`transformer.r`).
//! Files with such a configuration carry no alpha of their own: scale = `lora_alpha / rank`, or
//! `lora_alpha / sqrt(rank)` with `use_rslora` (Kalajdzievski 2023).
//!
//! `r` and `rank_pattern` are not read: they say what ranks the factors were made with, and the factors
//! in the file have them. Where the two disagree, the file's own rank rules.

use std::{fmt, path::Path};

use regex_lite::{Regex, RegexBuilder};
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
    /// Bytes of the longest configuration that is read; real ones have a few thousand.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Reads the text of an `adapter_config.json`; `path` names its file in messages.
    ///
    /// # Errors
    /// [`PatchError::ConfigTooLong`], [`PatchError::ConfigJson`], [`PatchError::ConfigPattern`], or
    /// [`PatchError::UnsupportedConfig`] for adapters that are only valid on a base that was changed.
    pub fn from_json(path: &Path, text: impl AsRef<[u8]>) -> Result<Self, PatchError> {
        let text = text.as_ref();
        if text.len() > Self::MAX_BYTES {
            return Err(PatchError::ConfigTooLong {
                path: path.into(),
                max_bytes: Self::MAX_BYTES,
            });
        }
        let raw = serde_json::from_slice(text).map_err(|source| PatchError::ConfigJson {
            path: path.into(),
            source,
        })?;
        Self::from_raw(path, raw)
    }

    /// Reads the metadata of the safetensors file `path`; `None` when it holds no configuration.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json).
    pub fn from_metadata<'a>(
        path: &Path,
        metadata: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<Option<Self>, PatchError> {
        let mut metadata = metadata.into_iter();
        let text = metadata.find_map(|(key, text)| (key == METADATA_KEY).then_some(text));
        text.map(|text| Self::from_json(path, text)).transpose()
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

    fn from_raw(path: &Path, raw: RawConfig) -> Result<Self, PatchError> {
        raw.check(path)?;
        let alpha_pattern = raw.alpha_pattern.unwrap_or_default().0;
        Ok(Self {
            peft_type: raw.peft_type,
            alpha: raw.lora_alpha,
            alpha_pattern: alpha_pattern
                .into_iter()
                .map(|(key, alpha)| Ok((compiled(path, key)?, alpha)))
                .collect::<Result<_, _>>()?,
            use_rslora: raw.use_rslora.unwrap_or(false),
        })
    }
}

fn compiled(path: &Path, key: String) -> Result<Regex, PatchError> {
    // PEFT matches a module's path against the key as a whole name at its end.
    RegexBuilder::new(&format!("^(?:.*\\.)?(?:{key})$"))
        .size_limit(MAX_PATTERN_BYTES)
        .build()
        .map_err(|source| PatchError::ConfigPattern {
            path: path.into(),
            pattern: key,
            source,
        })
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
    /// Refuses what no residual on the original base can express, and more patterns than any file has.
    fn check(&self, path: &Path) -> Result<(), PatchError> {
        let unsupported = |(field, found, why)| {
            Err(PatchError::UnsupportedConfig {
                path: path.into(),
                field,
                found,
                why,
            })
        };
        self.refused().map_or(Ok(()), unsupported)
    }

    /// The first field that is refused, its value, and why.
    fn refused(&self) -> Option<(&'static str, String, &'static str)> {
        if let Some(Value::String(init)) = &self.init_lora_weights
            && CHANGES_BASE.iter().any(|name| init.starts_with(name))
        {
            let found = Value::from(init.as_str()).to_string();
            return Some(("init_lora_weights", found, CONVERT));
        }
        let num_patterns = self.alpha_pattern.as_ref().map_or(0, |all| all.0.len());
        if num_patterns > MAX_PATTERNS {
            let found = format!("{num_patterns} patterns");
            return Some(("alpha_pattern", found, TOO_MANY_PATTERNS));
        }
        let fields = [
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
        let mut fields = fields.into_iter();
        fields.find_map(|(field, value, why)| Some((field, value.as_ref()?.to_string(), why)))
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
/// More patterns than a model has layers.
const MAX_PATTERNS: usize = 4096;
const TOO_MANY_PATTERNS: &str = "at most 4096 are read; write one pattern for several layers";
/// Memory of one compiled pattern, so that a short text cannot ask for gigabytes.
const MAX_PATTERN_BYTES: usize = 1 << 16;
