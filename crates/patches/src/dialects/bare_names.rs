//! Dotted names without any prefix.
//!
//! `double_blocks.0.img_attn.qkv.lora_A.weight` (Black Forest Labs' control `LoRAs`, `DiffSynth`, early Wan
//! files), `transformer_blocks.0.attn.to_k.lora_down.weight` (Qwen-Image Lightning). Such a key is read when
//! its first piece is a plain word that starts no other spelling, and no other dialect reads it. The path
//! tells a text encoder from the denoiser.

use crate::{
    Dialect, FileKey, TargetName,
    dialects::{split_suffix, starts_with_any},
};

inventory::submit! { Dialect { name: NAME, prefixes: &[], parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    if !starts_with_word(path) || is_anothers(key) {
        return None;
    }
    Some(FileKey::by_layer(TargetName::Dotted(path.into()), suffix))
}

/// Whether the first piece of the path is a plain word, and not one with underscores for dots.
fn starts_with_word(path: &str) -> bool {
    let root = path.split('.').next().unwrap_or(path);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    root.starts_with(|first: char| first.is_ascii_alphabetic())
        && root.bytes().all(is_letter)
        && !root.starts_with("lora_")
}

/// A bare name could be in any spelling; this dialect alone asks the others, so that none asks in a circle.
fn is_anothers(key: &str) -> bool {
    inventory::iter::<Dialect>
        .into_iter()
        .filter(|dialect| dialect.name != NAME)
        .any(|dialect| starts_with_any(key, dialect.prefixes) || (dialect.parse)(key).is_some())
}

const NAME: &str = "bare-names";
