//! CLIP text encoders in transformers' naming, as every pipeline of Stable Diffusion and FLUX.1 has one or two.
//!
//! kohya calls the smaller one `lora_te` or `lora_te1`, the larger one (width 1280) `lora_te2`; diffusers
//! `text_encoder` and `text_encoder_2`; `ComfyUI` `text_encoders.clip_l` and `clip_g`. A name without any of these
//! is the smaller one's.

use super::{Alias, Family, Layers, Part};

pub(super) const FAMILY: Family = Family {
    name: "CLIP text encoder",
    architecture: "clip",
    part: Part::TextEncoder,
    markers: &[&["text_model.encoder.layers.0.self_attn.q_proj.weight"]],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let width = layers.get("text_model.encoder.layers.0.self_attn.q_proj");
    let width = width.map_or(0, |shape| shape.d_output());
    layers
        .keys()
        .filter_map(|path| Alias::whole(path.clone(), path, layers))
        .flat_map(|alias| called(alias, width))
        .collect()
}

/// The alias behind each name of a CLIP of this width.
pub(super) fn called(alias: Alias, width: usize) -> impl Iterator<Item = Alias> {
    let encoders = if width >= LARGE { LARGER } else { SMALLER };
    encoders.iter().map(move |encoder| Alias {
        name: format!("{encoder}{}", alias.name),
        pieces: alias.pieces.clone(),
    })
}

const SMALLER: &[&str] = &[
    "",
    "lora_te.",
    "lora_te.wrapped_transformer.",
    "lora_te1.",
    "clip_l.",
    "text_encoder.",
    "text_encoders.clip_l.transformer.",
];

const LARGER: &[&str] = &[
    "lora_te2.",
    "lora_prior_te.",
    "clip_g.",
    "text_encoder_2.",
    "text_encoders.clip_g.transformer.",
];

/// Width of CLIP bigG.
const LARGE: usize = 1280;
