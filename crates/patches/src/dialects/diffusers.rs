//! Dotted names, as diffusers and PEFT write them.
//!
//! `transformer.<path>.lora_A.weight` (diffusers), `base_model.model.<path>.lora_A.weight` (a PEFT
//! folder, with or without `transformer.` inside). A text encoder's keys keep their whole name: they
//! are understood, and no transformer has a layer of that name.

use crate::{Dialect, FileKey, TargetName, dialects::split_suffix};

inventory::submit! { Dialect { name: "diffusers", parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    let path = layer_path(path).filter(|path| !path.is_empty())?;
    Some(FileKey {
        target: TargetName::Dotted(path.into()),
        suffix,
    })
}

fn layer_path(path: &str) -> Option<&str> {
    if TEXT_ENCODERS.iter().any(|prefix| path.starts_with(prefix)) {
        return Some(path);
    }
    match path.strip_prefix(PEFT_FOLDER) {
        Some(inner) => Some(inner.strip_prefix(TRANSFORMER).unwrap_or(inner)),
        None => path.strip_prefix(TRANSFORMER),
    }
}

const TRANSFORMER: &str = "transformer.";
const PEFT_FOLDER: &str = "base_model.model.";
const TEXT_ENCODERS: [&str; 3] = ["text_encoder.", "text_encoder_2.", "text_encoder_3."];
