//! Dotted names, as diffusers, PEFT and `ComfyUI` write them.
//!
//! `transformer.<path>.lora_A.weight` (diffusers), `base_model.model.<path>.lora_A.weight` (a PEFT
//! folder, with or without `transformer.` inside), `diffusion_model.<path>.lora_A.weight` (`ComfyUI`,
//! ai-toolkit), and the bare `<path>.lora_A.weight`, which is read when no other dialect reads it. The path
//! is in diffusers' names or in the model's own. A text encoder's keys keep their whole name: they
//! are understood, and no transformer has a layer of that name.

use crate::{Dialect, FileKey, TargetName, dialects::split_suffix};

inventory::submit! { Dialect { name: NAME, parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    let is_bare = || is_bare(path) && !is_norm(path, &suffix) && !is_read_by_another(key);
    let path = layer_path(path).or_else(|| is_bare().then_some(path))?;
    if path.is_empty() {
        return None;
    }
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
        None => path
            .strip_prefix(TRANSFORMER)
            .or_else(|| path.strip_prefix(DIFFUSION_MODEL)),
    }
}

/// Whether the first piece of the path is a plain word that starts no spelling with a prefix.
fn is_bare(path: &str) -> bool {
    let root = path.split('.').next().unwrap_or(path);
    let is_word = root.starts_with(|first: char| first.is_ascii_alphabetic())
        && root
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let has_prefix =
        ROOTS.contains(&root) || FLAT_PREFIXES.iter().any(|flat| root.starts_with(flat));
    is_word && !has_prefix
}

/// A checkpoint's norms have a `scale` that is a weight; without a prefix it is no adapter's.
fn is_norm(path: &str, suffix: &str) -> bool {
    suffix == "scale" && path.ends_with("norm")
}

/// A bare name could be in any spelling; this dialect alone asks the others, so that none asks in a circle.
fn is_read_by_another(key: &str) -> bool {
    inventory::iter::<Dialect>
        .into_iter()
        .any(|dialect| dialect.name != NAME && (dialect.parse)(key).is_some())
}

const NAME: &str = "diffusers";
const TRANSFORMER: &str = "transformer.";
const PEFT_FOLDER: &str = "base_model.model.";
const DIFFUSION_MODEL: &str = "diffusion_model.";
const TEXT_ENCODERS: [&str; 4] = [
    "text_encoder.",
    "text_encoder_2.",
    "text_encoder_3.",
    "text_encoders.",
];
/// First pieces that are prefixes, here or in spellings of other models.
const ROOTS: [&str; 4] = ["transformer", "base_model", "diffusion_model", "unet"];
/// Starts of names with underscores for dots.
const FLAT_PREFIXES: [&str; 2] = ["lora_", "lycoris_"];
