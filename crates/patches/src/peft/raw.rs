//! The fields of a PEFT configuration as they stand in the file, and what is refused of them.
//!
//! The metadata of a diffusers file holds one configuration for each component, its name before every field
//! (`transformer.r`, `text_encoder.r`); the fields of a component are parsed as a configuration of their own.

use std::{fmt, marker::PhantomData, path::Path};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::Value;

use crate::PatchError;

/// The fields of one component; a saved configuration writes `null` for what is unset.
#[derive(Deserialize)]
pub(super) struct RawConfig {
    pub(super) peft_type: Option<String>,
    pub(super) peft_version: Option<String>,
    #[serde(alias = "alpha")]
    pub(super) lora_alpha: Option<f64>,
    pub(super) alpha_pattern: Option<Entries<f64>>,
    pub(super) r: Option<usize>,
    pub(super) rank_pattern: Option<Entries<usize>>,
    pub(super) use_rslora: Option<bool>,
    pub(super) use_dora: Option<bool>,
    pub(super) lora_bias: Option<bool>,
    pub(super) fan_in_fan_out: Option<bool>,
    pub(super) feedforward_modules: Option<Names>,
    pub(super) modules_to_save: Option<Vec<String>>,
    pub(super) use_cayley_neumann: Option<bool>,
    pub(super) num_cayley_neumann_terms: Option<usize>,
    pub(super) coft: Option<bool>,
    pub(super) eps: Option<f64>,
    pub(super) init_lora_weights: Option<Value>,
    layer_replication: Option<Value>,
    trainable_token_indices: Option<Value>,
    alora_invocation_tokens: Option<Value>,
    target_parameters: Option<Value>,
}

/// Names of modules: a list of ends of paths, or a pattern for whole paths.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Names {
    Pattern(String),
    Ends(Vec<String>),
}

/// The value of a field, whose entries keep the file's order where it is an object.
#[derive(Deserialize)]
#[serde(untagged)]
enum Field {
    Object(Entries<Value>),
    Other(Value),
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entries(entries) = match self {
            Self::Other(value) => return write!(formatter, "{value}"),
            Self::Object(entries) => entries,
        };
        formatter.write_str("{")?;
        for (index, (key, value)) in entries.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(formatter, "{comma}{}:{value}", Value::from(key.as_str()))?;
        }
        formatter.write_str("}")
    }
}

/// The fields of each component of a configuration, with its name; the name is empty in an `adapter_config.json`.
pub(super) fn components(text: &[u8]) -> Result<Vec<(&'static str, RawConfig)>, serde_json::Error> {
    let Entries(fields): Entries<Field> = serde_json::from_slice(text)?;
    let mut objects: Vec<(&'static str, String)> = Vec::new();
    for (key, value) in fields {
        let named = COMPONENTS.into_iter().find_map(|name| {
            let field = key.strip_prefix(name)?.strip_prefix('.')?;
            Some((name, field))
        });
        let (name, field) = named.unwrap_or(("", &key));
        let entry = format!("{}:{value}", Value::from(field));
        match objects.iter_mut().find(|(known, _)| *known == name) {
            Some((_, object)) => {
                object.push(',');
                object.push_str(&entry);
            }
            None => objects.push((name, entry)),
        }
    }
    if objects.is_empty() {
        objects.push(("", String::new()));
    }
    let parse = |(name, entries)| Ok((name, serde_json::from_str(&format!("{{{entries}}}"))?));
    objects.into_iter().map(parse).collect()
}

impl RawConfig {
    /// Refuses what no residual on the original base can express, and more patterns than any file has.
    pub(super) fn check(&self, path: &Path) -> Result<(), PatchError> {
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
        let num_alphas = self.alpha_pattern.as_ref().map_or(0, |all| all.0.len());
        let num_ranks = self.rank_pattern.as_ref().map_or(0, |all| all.0.len());
        for (field, num_patterns) in [("alpha_pattern", num_alphas), ("rank_pattern", num_ranks)] {
            if num_patterns > MAX_PATTERNS {
                let found = format!("{num_patterns} patterns");
                return Some((field, found, TOO_MANY_PATTERNS));
            }
        }
        if let Some(refused) = self.refused_rotation() {
            return Some(refused);
        }
        let fields = [
            ("layer_replication", &self.layer_replication, CHANGES_DEPTH),
            (
                "trainable_token_indices",
                &self.trainable_token_indices,
                REPLACES_ROWS,
            ),
            (
                "alora_invocation_tokens",
                &self.alora_invocation_tokens,
                SOME_TOKENS,
            ),
            ("target_parameters", &self.target_parameters, PARAMETERS),
        ];
        let mut fields = fields.into_iter();
        fields.find_map(|(field, value, why)| {
            let value = value.as_ref().filter(|value| !is_empty(value))?;
            Some((field, value.to_string(), why))
        })
    }
}

impl RawConfig {
    /// As [`refused`](Self::refused), of the fields that say how rotations are made.
    fn refused_rotation(&self) -> Option<(&'static str, String, &'static str)> {
        let terms = |terms: usize, why| Some(("num_cayley_neumann_terms", terms.to_string(), why));
        match self.num_cayley_neumann_terms {
            Some(0) => return terms(0, NO_TERMS),
            Some(count) if count > MAX_TERMS => return terms(count, TOO_MANY_TERMS),
            _ => {}
        }
        let is_limit = |epsilon: f64| epsilon.is_finite() && epsilon >= 0.0;
        let epsilon = self.eps.filter(|epsilon| !is_limit(*epsilon))?;
        Some(("eps", epsilon.to_string(), NO_LIMIT))
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
        || value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// The entries of an object in the file's order: of several patterns, the first match counts.
pub(super) struct Entries<T>(pub(super) Vec<(String, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = Entries<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

/// Names of components that stand before fields.
const COMPONENTS: [&str; 5] = [
    "transformer",
    "unet",
    "text_encoder",
    "text_encoder_2",
    "text_encoder_3",
];
const CHANGES_DEPTH: &str =
    "it changes the model's depth; merge the adapter into its model with PEFT";
const REPLACES_ROWS: &str = "it replaces embeddings; merge the adapter into its model with PEFT";
const SOME_TOKENS: &str = "it acts on some tokens only; train an ordinary LoRA";
const PARAMETERS: &str =
    "it is for parameters that are no layer's weight; merge the adapter into its model with PEFT";
/// More patterns than a model has layers.
const MAX_PATTERNS: usize = 4096;
const TOO_MANY_PATTERNS: &str = "at most 4096 are read; write one pattern for several layers";
/// More terms than f32 tells from the whole series.
const MAX_TERMS: usize = 64;
const NO_TERMS: &str =
    "expected at least 1, the identity; write the number that the adapter was trained with";
const NO_LIMIT: &str =
    "expected a limit of 0 or more; write the one that the adapter was trained with";
const TOO_MANY_TERMS: &str =
    "at most 64 are computed; set `use_cayley_neumann` to false for the exact transform";
