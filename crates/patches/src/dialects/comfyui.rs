//! Dotted names of `ComfyUI`'s models, as it and ai-toolkit write them.
//!
//! `diffusion_model.<path>.lora_A.weight`, the path mostly in the model's own names. Text encoders are
//! `text_encoders.clip_l.transformer.<path>` and keep their whole name; a language model's adapter inside
//! the denoiser (`diffusion_model.llm_adapter`) is no text encoder.
//!
//! comfyanonymous/ComfyUI, `comfy/lora.py`; ostris/ai-toolkit, `toolkit/lora_special.py`.

use crate::{Dialect, FileKey, TargetName, dialects::split_suffix};

inventory::submit! { Dialect { name: "comfyui", prefixes: &[DENOISER, TEXT_ENCODERS], parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    if let Some(name) = path.strip_prefix(DENOISER) {
        let target = TargetName::Dotted(name.into());
        return (!name.is_empty()).then(|| FileKey::denoiser(target, suffix));
    }
    path.strip_prefix(TEXT_ENCODERS)
        .is_some_and(|name| !name.is_empty())
        .then(|| FileKey::text_encoder(TargetName::Dotted(path.into()), suffix))
}

const DENOISER: &str = "diffusion_model.";
const TEXT_ENCODERS: &str = "text_encoders.";
