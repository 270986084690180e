//! The model a key is for: the denoiser, or one of the text encoders beside it.
//!
//! A spelling's prefix tells a text encoder from the denoiser. *Which* encoder it is, the prefix does not
//! tell: T5 is `lora_te3_` to sd-scripts and `lora_te2_` to `OneTrainer`. The names of its layers do.

use std::fmt;

/// A model of a pipeline that a key can be for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Component {
    /// The U-Net or transformer that denoises, with all that is inside it.
    #[default]
    Denoiser,
    /// A model that encodes the prompt.
    TextEncoder(TextEncoder),
}

/// What kind of model encodes the prompt, as far as the layer's name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TextEncoder {
    /// `text_model.encoder.layers.N`, or `OpenCLIP`'s `transformer.resblocks.N`.
    Clip,
    /// `encoder.block.N.layer.M`.
    T5,
    /// The decoder of a language model, `model.layers.N`.
    LanguageModel,
    /// None of these.
    Unknown,
}

impl Component {
    /// Whether it is one of the text encoders.
    #[must_use]
    pub const fn is_text_encoder(self) -> bool {
        matches!(self, Self::TextEncoder(_))
    }

    /// What the layer name `path` is of when its prefix does not tell.
    pub(super) fn of_path(path: &str) -> Self {
        let flat = path.replace('.', "_");
        match ENCODER_STARTS.iter().any(|start| flat.starts_with(start)) {
            true => Self::TextEncoder(TextEncoder::of_path(path)),
            false => Self::Denoiser,
        }
    }
}

impl TextEncoder {
    /// What kind of text encoder has a layer of the name `path`, prefixes and all.
    pub(super) fn of_path(path: &str) -> Self {
        let flat = path.replace('.', "_");
        let has = |parts: &[&str]| parts.iter().any(|part| flat.contains(part));
        match () {
            () if has(&["text_model_", "resblocks_", "text_projection"]) => Self::Clip,
            () if has(&["encoder_block_", "SelfAttention", "DenseReluDense"]) => Self::T5,
            () if has(&["layers_"]) => Self::LanguageModel,
            () => Self::Unknown,
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Denoiser => "the denoiser",
            Self::TextEncoder(TextEncoder::Clip) => "a CLIP text encoder",
            Self::TextEncoder(TextEncoder::T5) => "a T5 text encoder",
            Self::TextEncoder(TextEncoder::LanguageModel) => "a language model as text encoder",
            Self::TextEncoder(TextEncoder::Unknown) => "a text encoder",
        })
    }
}

/// How the layer names of text encoders start, with underscores for dots. `layers.N` alone is no such start:
/// several denoisers have it.
const ENCODER_STARTS: [&str; 3] = ["text_model_encoder_", "encoder_block_", "model_layers_"];
