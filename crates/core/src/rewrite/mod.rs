//! The same weights in another file: other types, another container.
//!
//! Every weight is read, decoded and packed anew one after another; in memory at once are the tables of the file, and
//! for one weight its values in f32 and its new parts. What stays as it is goes over bit for bit.

mod rules;
mod write;

use std::collections::BTreeMap;

use burn::tensor::FloatDType;
use overglaze_quant::{Encode, QuantError, QuantFormat};
use overglaze_stream::WeightSource;

use crate::{Error, StoredWeight, source_tensor, stored_weights};

pub use self::rules::{KeptFor, PackRules};

/// A rewriting of a file that is planned; nothing is written yet.
#[derive(Debug)]
pub struct FileRewrite<'a> {
    source: &'a dyn WeightSource,
    weights: BTreeMap<String, RewrittenWeight>,
    /// What the new file has to say of its packed weights, as key and text.
    text: Option<(&'static str, String)>,
}

/// A weight and what becomes of it.
#[derive(Clone, Debug)]
pub struct RewrittenWeight {
    /// As it is stored now.
    pub stored: StoredWeight,
    /// What it becomes.
    pub outcome: Outcome,
    /// Why it is not packed, where others are.
    pub kept_for: Option<KeptFor>,
}

/// The kind of file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// Tensors of any shape, of a fixed list of types.
    Safetensors,
    /// One tensor a weight, of GGML's types.
    Gguf,
}

/// What becomes of a weight.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// Its tensors go over bit for bit.
    Copied,
    /// Plain values of this type.
    Decoded(FloatDType),
    /// Packed in this way.
    Packed(&'static dyn Encode),
}

impl<'a> FileRewrite<'a> {
    /// Every weight that is packed as plain values of `dtype`; plain ones as they are.
    #[must_use]
    pub fn decoded(source: &'a dyn WeightSource, dtype: FloatDType) -> Self {
        Self::new(source, |_, stored| (unpacked(stored, dtype), None))
    }

    /// Every tensor as it is; as plain values of `dtype` where its type is none a safetensors file can hold.
    #[must_use]
    pub fn converted(source: &'a dyn WeightSource, dtype: FloatDType) -> Self {
        Self::new(source, |_, stored| {
            (held(stored, Container::Safetensors, dtype), None)
        })
    }

    /// The weights that `rules` name packed by `encoder`, the others as they are; in plain values of `dtype` where the new
    /// file, a `container`, could not hold them, or says of the format what would not be true of them.
    #[must_use]
    pub fn packed(
        source: &'a dyn WeightSource,
        encoder: &'static dyn Encode,
        rules: &PackRules,
        (container, dtype): (Container, FloatDType),
    ) -> Self {
        let has_text = encoder.file_text(&[]).is_some();
        let plan = |name: &str, stored: &StoredWeight| {
            let kept_for = match stored.format {
                None => Some(KeptFor::NoNumbers),
                Some(found) if !found.has_values() => Some(KeptFor::NoNumbers),
                Some(_) => rules.kept_for(name, &stored.shape, encoder),
            };
            match kept_for {
                None if is_packed_by(encoder, name, stored) => (Outcome::Copied, None),
                None => (Outcome::Packed(encoder), None),
                Some(_) if has_text && is_of(encoder.format(), stored) => {
                    (Outcome::Decoded(dtype), kept_for)
                }
                Some(_) => (held(stored, container, dtype), kept_for),
            }
        };
        let mut rewrite = Self::new(source, plan);
        rewrite.text = encoder.file_text(&rewrite.kept_matrices());
        rewrite
    }

    /// The metadata of a new safetensors file: those of the old one, but for what was said of weights that are packed no
    /// more, and what the packed ones need.
    #[must_use]
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let mut metadata = self.source.metadata().clone();
        let describes = |weight: &RewrittenWeight| {
            matches!(weight.outcome, Outcome::Copied) && !is_plain(&weight.stored)
        };
        if !self.weights.values().any(describes) {
            metadata.remove(QUANTIZATION_CONFIG);
        }
        if let Some((key, text)) = &self.text {
            metadata.insert((*key).into(), text.clone());
        }
        metadata
    }

    /// That every weight can be read, so that none goes over packed where it was to be decoded. Tensors that no format
    /// takes, such as names and counters, are no weights.
    ///
    /// # Errors
    /// [`Error::Quant`] names the first that cannot, and says why.
    pub fn check_readable(&self) -> Result<(), Error> {
        let unread = self
            .weights
            .iter()
            .filter(|(_, weight)| weight.stored.format.is_none());
        for (name, _) in unread {
            match source_tensor::found(self.source, name) {
                Err(Error::Quant { source, .. }) if is_no_format(&source) => {}
                found => drop(found?),
            }
        }
        Ok(())
    }

    /// Every weight, under the name of its main tensor.
    #[must_use]
    pub fn weights(&self) -> &BTreeMap<String, RewrittenWeight> {
        &self.weights
    }

    fn new(
        source: &'a dyn WeightSource,
        plan: impl Fn(&str, &StoredWeight) -> (Outcome, Option<KeptFor>),
    ) -> Self {
        let weights = stored_weights(source).into_iter().map(|(name, stored)| {
            let (outcome, kept_for) = plan(&name, &stored);
            let weight = RewrittenWeight {
                stored,
                outcome,
                kept_for,
            };
            (name, weight)
        });
        Self {
            source,
            weights: weights.collect(),
            text: None,
        }
    }

    fn kept_matrices(&self) -> Vec<&str> {
        let weights = self.weights.iter();
        let kept = weights
            .filter(|(_, weight)| weight.kept_for.is_some() && weight.stored.shape.len() > 1);
        kept.map(|(name, _)| name.as_str()).collect()
    }
}

/// What libraries that quantize say of a file's weights.
const QUANTIZATION_CONFIG: &str = "quantization_config";

fn is_no_format(error: &QuantError) -> bool {
    matches!(error, QuantError::UnknownFormat { .. })
}

/// Plain values where the weight is packed.
fn unpacked(stored: &StoredWeight, dtype: FloatDType) -> Outcome {
    match stored.format {
        Some(format) if is_plain(stored) || !format.has_values() => Outcome::Copied,
        Some(_) => Outcome::Decoded(dtype),
        None => Outcome::Copied,
    }
}

/// As it is where the file can hold it.
fn held(stored: &StoredWeight, container: Container, dtype: FloatDType) -> Outcome {
    let can_hold = match container {
        Container::Safetensors => overglaze_stream::is_safetensors_type(&stored.tag),
        Container::Gguf => {
            let type_id = stored.format.and_then(QuantFormat::ggml_type);
            // What has no numbers cannot be decoded either; the error says so.
            stored.tensors.len() == 1 && type_id.is_some() || stored.format.is_none()
        }
    };
    match can_hold {
        true => Outcome::Copied,
        false => Outcome::Decoded(dtype),
    }
}

/// One tensor of numbers that stand for themselves.
fn is_plain(stored: &StoredWeight) -> bool {
    let is_number = matches!(
        stored.tag.as_str(),
        "F64" | "F32" | "F16" | "BF16" | "I8" | "I16" | "I32" | "I64"
    );
    stored.tensors.len() == 1 && is_number
}

/// Whether `encoder` would write the weight `name` just so.
fn is_packed_by(encoder: &dyn Encode, name: &str, stored: &StoredWeight) -> bool {
    let tensors = encoder.stored_as(name, &stored.shape);
    let values = tensors.iter().find(|tensor| tensor.name == name);
    is_of(encoder.format(), stored) && values.is_some_and(|values| values.tag == stored.tag)
}

fn is_of(format: &dyn QuantFormat, stored: &StoredWeight) -> bool {
    let found = stored.format.map(QuantFormat::name);
    found == Some(format.name())
}
