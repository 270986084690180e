//! Flattened names, as kohya's sd-scripts and LyCORIS write them.
//!
//! `lora_unet_<path with dots as underscores>.lora_down.weight`. Some trainers double the underscore
//! after the prefix or leave one before the dot; both are dropped. A text encoder's keys keep their
//! whole name: they are understood, and no transformer has a layer of that name.

use crate::{Dialect, FileKey, TargetName, dialects::split_suffix};

inventory::submit! { Dialect { name: "kohya", parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    let name = layer_name(path)?.trim_matches('_');
    let is_flat = !name.is_empty() && !name.contains('.');
    is_flat.then(|| FileKey {
        target: TargetName::Flattened(name.into()),
        suffix,
    })
}

fn layer_name(path: &str) -> Option<&str> {
    if TEXT_ENCODERS.iter().any(|prefix| path.starts_with(prefix)) {
        return Some(path);
    }
    path.strip_prefix("lora_unet_")
}

const TEXT_ENCODERS: [&str; 4] = ["lora_te_", "lora_te1_", "lora_te2_", "lora_te3_"];
