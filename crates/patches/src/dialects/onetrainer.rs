//! Names that `OneTrainer` alone writes.
//!
//! Its older files have diffusers' names with underscores for dots,
//! `lora_transformer_single_transformer_blocks_0_attn_to_k.lora_down.weight`, beside kohya's for text
//! encoders. Its newer ones have the model's own names under `transformer.`, where one more piece counts
//! the parts of a fused layer (`transformer.double_blocks.0.img_attn.qkv.2.lora_up.weight` is v): dotted
//! names as any other, whose parts the model's name table knows. Only their text encoders, `clip_l.` and
//! its like, are read here.
//!
//! Nerogar/OneTrainer, `modules/util/convert/lora`.

use crate::{
    Dialect, FileKey, TargetName,
    dialects::{split_suffix, starts_with_any},
};

inventory::submit! { Dialect { name: "onetrainer", prefixes: PREFIXES, parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = split_suffix(key)?;
    if starts_with_any(path, TEXT_ENCODERS) {
        let target = TargetName::Dotted(path.into());
        return Some(FileKey::text_encoder(target, suffix));
    }
    let name = path.strip_prefix(TRANSFORMER)?.trim_matches('_');
    let is_flat = !name.is_empty() && !name.contains('.');
    is_flat.then(|| FileKey::denoiser(TargetName::Flattened(name.into()), suffix))
}

const PREFIXES: &[&str] = &["lora_transformer_", "clip_l.", "clip_g.", "t5.", "t5xxl."];
const TRANSFORMER: &str = "lora_transformer_";
const TEXT_ENCODERS: &[&str] = &["clip_l.", "clip_g.", "t5.", "t5xxl."];
