//! `OpenCLIP`'s text encoders (SD 2, SDXL as Stability saves it), called by transformers' names.
//!
//! Query, key and value are rows of one parameter, `attn.in_proj_weight`.

use super::{
    Alias, Family, Layers, Part, clip,
    rows::{Row, aliases_of},
};

pub(super) const FAMILY: Family = Family {
    name: "OpenCLIP text encoder",
    architecture: "clip",
    part: Part::TextEncoder,
    markers: &[&["transformer.resblocks.0.attn.in_proj_weight"]],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let width = layers.get("transformer.resblocks.0.attn.out_proj");
    let width = width.map_or(0, |shape| shape.d_output());
    let mut rows: Vec<Row> = NAMES.iter().map(|names| Row::same(names)).collect();
    rows.push(Row::fused("transformer.resblocks.{}.attn.in_proj", QKV));
    aliases_of(&rows, layers)
        .into_iter()
        .flat_map(|alias| clip::called(alias, width))
        .collect()
}

const QKV: &[&str] = &[
    "text_model.encoder.layers.{}.self_attn.q_proj",
    "text_model.encoder.layers.{}.self_attn.k_proj",
    "text_model.encoder.layers.{}.self_attn.v_proj",
];

const NAMES: &[[&str; 2]] = &[
    ["token_embedding", "text_model.embeddings.token_embedding"],
    ["ln_final", "text_model.final_layer_norm"],
    [
        "transformer.resblocks.{}.attn.out_proj",
        "text_model.encoder.layers.{}.self_attn.out_proj",
    ],
    [
        "transformer.resblocks.{}.ln_1",
        "text_model.encoder.layers.{}.layer_norm1",
    ],
    [
        "transformer.resblocks.{}.ln_2",
        "text_model.encoder.layers.{}.layer_norm2",
    ],
    [
        "transformer.resblocks.{}.mlp.c_fc",
        "text_model.encoder.layers.{}.mlp.fc1",
    ],
    [
        "transformer.resblocks.{}.mlp.c_proj",
        "text_model.encoder.layers.{}.mlp.fc2",
    ],
];
