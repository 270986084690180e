//! Dotted names under the name of a pipeline's component, as diffusers writes them.
//!
//! `transformer.<path>.lora_A.weight`, `unet.<path>.lora.down.weight` and
//! `unet.<path>.lora_linear_layer.down.weight` (2023). The path is in diffusers' names or in the model's
//! own. A text encoder's keys, `text_encoder.` to `text_encoder_3.`, keep their whole name.
//!
//! huggingface/diffusers, `src/diffusers/loaders/lora_pipeline.py`.

use crate::{
    Dialect, FileKey, TargetName,
    dialects::{split_suffix, starts_with_any, strip_any},
};

inventory::submit! { Dialect { name: "diffusers", prefixes: PREFIXES, parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    let name = strip_any(path, PREFIXES)?;
    // What PEFT has wrapped inside a component is another spelling.
    if name.is_empty() || name.starts_with("base_model.") {
        return None;
    }
    Some(match starts_with_any(path, DENOISERS) {
        true => FileKey::denoiser(TargetName::Dotted(name.into()), suffix),
        false => FileKey::text_encoder(TargetName::Dotted(path.into()), suffix),
    })
}

const PREFIXES: &[&str] = &[
    "transformer.",
    "unet.",
    "text_encoder.",
    "text_encoder_2.",
    "text_encoder_3.",
];
const DENOISERS: &[&str] = &["transformer.", "unet."];
