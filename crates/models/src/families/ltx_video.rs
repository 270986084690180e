//! LTX-Video: its own and diffusers naming differ outside the blocks and in the norms.

use super::{
    Alias, Family, Layers, Part,
    rows::{Row, aliases_of},
};

pub(super) const FAMILY: Family = Family {
    name: "LTX-Video",
    architecture: "ltxv",
    part: Part::Denoiser,
    markers: &[
        &[
            "patchify_proj.weight",
            "transformer_blocks.0.attn1.to_q.weight",
        ],
        &[
            "caption_projection.linear_1.weight",
            "proj_in.weight",
            "transformer_blocks.0.attn1.to_q.weight",
        ],
    ],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let rows: Vec<Row> = NAMES.iter().map(|names| Row::same(names)).collect();
    aliases_of(&rows, layers)
}

const NAMES: &[[&str; 2]] = &[
    ["patchify_proj", "proj_in"],
    ["adaln_single.linear", "time_embed.linear"],
    [
        "adaln_single.emb.timestep_embedder.linear_1",
        "time_embed.emb.timestep_embedder.linear_1",
    ],
    [
        "adaln_single.emb.timestep_embedder.linear_2",
        "time_embed.emb.timestep_embedder.linear_2",
    ],
    [
        "transformer_blocks.{}.attn1.q_norm",
        "transformer_blocks.{}.attn1.norm_q",
    ],
    [
        "transformer_blocks.{}.attn1.k_norm",
        "transformer_blocks.{}.attn1.norm_k",
    ],
    [
        "transformer_blocks.{}.attn2.q_norm",
        "transformer_blocks.{}.attn2.norm_q",
    ],
    [
        "transformer_blocks.{}.attn2.k_norm",
        "transformer_blocks.{}.attn2.norm_k",
    ],
];
