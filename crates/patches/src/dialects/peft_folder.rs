//! Dotted names of a model that PEFT has wrapped, as `save_pretrained` writes them.
//!
//! `base_model.model.<path>.lora_A.weight`, with or without the name of a component inside
//! (`base_model.model.transformer.<path>`) or before (`unet.base_model.model.<path>`). The wrapper is left
//! out of the target's name, and so is the denoiser's. Where no component is named, the path tells a text
//! encoder from the denoiser. `VeRA`'s shared factors stand at `base_model` itself.
//!
//! huggingface/peft, `src/peft/utils/save_and_load.py`.

use crate::{Dialect, FileKey, TargetName, dialects::split_suffix};

inventory::submit! { Dialect { name: "peft-folder", prefixes: &["base_model."], parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    let dotted = |name: &str| TargetName::Dotted(name.into());
    if path == BASE_MODEL {
        return SHARED
            .contains(&suffix.as_str())
            .then(|| FileKey::denoiser(dotted(path), suffix));
    }
    let (component, name) = without_wrapper(path)?;
    if name.is_empty() {
        return None;
    }
    if TEXT_ENCODERS.contains(&component) {
        let target = dotted(&format!("{component}{name}"));
        return Some(FileKey::text_encoder(target, suffix));
    }
    Some(FileKey::by_layer(dotted(name), suffix))
}

/// The component named before the wrapper or inside, empty where none is, and the path in it.
fn without_wrapper(path: &str) -> Option<(&str, &str)> {
    if let Some(inner) = path.strip_prefix(WRAPPED) {
        return Some(split_component(inner));
    }
    let (component, wrapped) = split_component(path);
    Some((component, wrapped.strip_prefix(WRAPPED)?))
}

fn split_component(path: &str) -> (&str, &str) {
    let mut components = DENOISERS.iter().chain(TEXT_ENCODERS);
    let component = components.find(|component| path.starts_with(**component));
    path.split_at(component.map_or(0, |component| component.len()))
}

const BASE_MODEL: &str = "base_model";
const WRAPPED: &str = "base_model.model.";
const SHARED: &[&str] = &["vera_A", "vera_B"];
const DENOISERS: &[&str] = &["transformer.", "unet.", "diffusion_model."];
const TEXT_ENCODERS: &[&str] = &["text_encoder.", "text_encoder_2.", "text_encoder_3."];
