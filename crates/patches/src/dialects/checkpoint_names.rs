//! Dotted names of the whole checkpoint, as the first Stable Diffusion wrote them.
//!
//! `model.diffusion_model.input_blocks.0.1.proj_in.lora_down.weight` for the denoiser. The text encoder is
//! `cond_stage_model.` in SD1.5 and 2, `conditioner.embedders.N.` in SDXL, and keeps its whole name.
//!
//! CompVis/stable-diffusion, Stability-AI/generative-models.

use crate::{
    Dialect, FileKey, TargetName,
    dialects::{split_suffix, strip_any},
};

inventory::submit! { Dialect { name: "checkpoint-names", prefixes: PREFIXES, parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    let name = strip_any(path, PREFIXES).filter(|name| !name.is_empty())?;
    Some(match path.starts_with(DENOISER) {
        true => FileKey::denoiser(TargetName::Dotted(name.into()), suffix),
        false => FileKey::text_encoder(TargetName::Dotted(path.into()), suffix),
    })
}

const DENOISER: &str = "model.diffusion_model.";
const PREFIXES: &[&str] = &[
    "model.diffusion_model.",
    "cond_stage_model.",
    "conditioner.embedders.",
];
