//! Spellings of adapter keys, one file each: from a file's key to a target name and a canonical suffix.

mod attention_processor;
mod bare_names;
mod checkpoint_names;
mod comfyui;
mod component;
mod diffusers;
mod families;
mod kohya;
mod lycoris;
mod onetrainer;
mod peft_folder;
mod suffixes;
mod xlabs;

use std::fmt;

pub use component::{Component, TextEncoder};
pub use families::Family;
pub(crate) use families::family;
pub use suffixes::split_suffix;
pub(crate) use suffixes::{adapter_name, is_norm};

/// The layer a key is meant for, as far as the file's spelling tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetName {
    /// The module path with its dots, e.g. `transformer_blocks.0.attn.to_q`.
    Dotted(String),
    /// The module path with dots written as underscores, e.g. `double_blocks_0_img_attn_qkv`. It cannot
    /// be undone by rule; the model's own name table resolves it.
    Flattened(String),
}

impl TargetName {
    /// The name as the file spells it, without the spelling's prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Dotted(name) | Self::Flattened(name) => name,
        }
    }

    /// The name of what lies inside it under `name`.
    fn child(&self, name: &str) -> Self {
        match self {
            Self::Dotted(path) => Self::Dotted(format!("{path}.{name}")),
            Self::Flattened(path) => Self::Flattened(format!("{path}_{name}")),
        }
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One key of a file, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKey {
    /// The layer it is for.
    pub target: TargetName,
    /// Canonical suffix, e.g. `lora_up.weight`.
    pub suffix: String,
    /// The model the layer is in.
    pub component: Component,
}

impl FileKey {
    /// A key for a layer of the denoiser.
    #[must_use]
    pub fn denoiser(target: TargetName, suffix: impl Into<String>) -> Self {
        let suffix = suffix.into();
        // Wan's blocks have a parameter `modulation` of their own, and its difference stands at the block.
        if suffix == "diff_m" {
            return Self::denoiser(target.child("modulation"), "diff");
        }
        Self {
            target,
            suffix,
            component: Component::Denoiser,
        }
    }

    /// A key whose spelling names no component: the layer's name tells it.
    #[must_use]
    pub fn by_layer(target: TargetName, suffix: impl Into<String>) -> Self {
        match Component::of_path(target.as_str()) {
            Component::Denoiser => Self::denoiser(target, suffix),
            Component::TextEncoder(_) => Self::text_encoder(target, suffix),
        }
    }

    /// A key for a layer of a text encoder; which, the layer's name tells.
    #[must_use]
    pub fn text_encoder(target: TargetName, suffix: impl Into<String>) -> Self {
        let encoder = TextEncoder::of_path(target.as_str());
        Self {
            target,
            suffix: suffix.into(),
            component: Component::TextEncoder(encoder),
        }
    }
}

/// A registered spelling of adapter keys; submit one with `inventory`.
#[derive(Debug)]
pub struct Dialect {
    /// Name, as reports show it.
    pub name: &'static str,
    /// Starts of keys that are in this spelling or in none; empty when it has none of its own.
    pub prefixes: &'static [&'static str],
    /// Reads one key of a file; `None` when the key is not in this spelling. No two dialects read one key.
    pub parse: fn(&str) -> Option<FileKey>,
}
inventory::collect!(Dialect);

/// Every registered dialect, sorted by name.
#[must_use]
pub fn dialects() -> Vec<&'static Dialect> {
    let mut dialects: Vec<_> = inventory::iter::<Dialect>.into_iter().collect();
    dialects.sort_unstable_by_key(|dialect| dialect.name);
    dialects
}

/// `path` without the first of the `prefixes` that starts it.
fn strip_any<'a>(path: &'a str, prefixes: &[&str]) -> Option<&'a str> {
    prefixes.iter().find_map(|prefix| path.strip_prefix(prefix))
}

/// Whether one of the `prefixes` starts `path`.
fn starts_with_any(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix))
}
