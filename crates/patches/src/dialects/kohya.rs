//! Flattened names, as kohya's sd-scripts, LyCORIS and most trainers write them.
//!
//! `lora_unet_<path with dots as underscores>.lora_down.weight`; Stable Cascade's start with `lora_prior_`.
//! Some trainers double the underscore after the prefix or leave one before the dot; both are dropped. A
//! text encoder's keys (`lora_te_`, `lora_te1_` to `lora_te3_`, old forks' `lora_te_wrapped_transformer_`)
//! keep their whole name.
//!
//! kohya-ss/sd-scripts, `networks/lora.py`.

use crate::{
    Dialect, FileKey, TargetName,
    dialects::{split_suffix, starts_with_any, strip_any},
};

inventory::submit! { Dialect { name: "kohya", prefixes: PREFIXES, parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    if path.contains('.') {
        return None;
    }
    if starts_with_any(path, TEXT_ENCODERS) {
        let target = TargetName::Flattened(path.into());
        return Some(FileKey::text_encoder(target, suffix));
    }
    let name = strip_any(path, DENOISERS)?.trim_matches('_');
    (!name.is_empty()).then(|| FileKey::denoiser(TargetName::Flattened(name.into()), suffix))
}

const PREFIXES: &[&str] = &["lora_unet_", "lora_prior_", "lora_te"];
const DENOISERS: &[&str] = &["lora_unet_", "lora_prior_unet_", "lora_prior_"];
const TEXT_ENCODERS: &[&str] = &[
    "lora_te_",
    "lora_te1_",
    "lora_te2_",
    "lora_te3_",
    "lora_prior_te_",
];
