//! Names of attention processors, as diffusers wrote them in 2023.
//!
//! `unet.<attention>.processor.to_q_lora.down.weight` is `<attention>.to_q`, `to_out_lora` is
//! `<attention>.to_out.0`; the processor is not always named, nor the component. In text encoders the
//! projections have other names: `text_encoder.<attention>.to_q_lora.down.weight` is `<attention>.q_proj`.
//!
//! huggingface/diffusers 0.16, `loaders.py`.

use crate::{
    Dialect, FileKey, TargetName,
    dialects::{starts_with_any, strip_any},
};

inventory::submit! { Dialect { name: "attention-processor", prefixes: &[], parse } }

fn parse(key: &str) -> Option<FileKey> {
    let (path, suffix) = SUFFIXES
        .iter()
        .find_map(|(tail, suffix)| Some((key.strip_suffix(tail)?, *suffix)))?;
    let (attention, projection) = path.rsplit_once('.')?;
    let attention = attention.strip_suffix(".processor").unwrap_or(attention);
    let [_, in_denoiser, in_encoder] = PROJECTIONS.iter().find(|[name, ..]| *name == projection)?;
    if starts_with_any(attention, TEXT_ENCODERS) {
        let target = TargetName::Dotted(format!("{attention}.{in_encoder}"));
        return Some(FileKey::text_encoder(target, suffix));
    }
    let attention = strip_any(attention, DENOISERS).unwrap_or(attention);
    let target = TargetName::Dotted(format!("{attention}.{in_denoiser}"));
    (!attention.is_empty()).then(|| FileKey::denoiser(target, suffix))
}

const SUFFIXES: [(&str, &str); 2] = [
    ("_lora.down.weight", "lora_down.weight"),
    ("_lora.up.weight", "lora_up.weight"),
];
/// Name in the file, in a denoiser, in a text encoder.
const PROJECTIONS: [[&str; 3]; 8] = [
    ["to_q", "to_q", "q_proj"],
    ["to_k", "to_k", "k_proj"],
    ["to_v", "to_v", "v_proj"],
    ["to_out", "to_out.0", "out_proj"],
    ["add_q_proj", "add_q_proj", "add_q_proj"],
    ["add_k_proj", "add_k_proj", "add_k_proj"],
    ["add_v_proj", "add_v_proj", "add_v_proj"],
    ["to_add_out", "to_add_out", "to_add_out"],
];
const DENOISERS: &[&str] = &["unet.", "transformer.", "diffusion_model."];
const TEXT_ENCODERS: &[&str] = &["text_encoder.", "text_encoder_2."];
