//! Wan 2.1 and 2.2 in their own and diffusers naming.

use super::{
    Alias, Family, Layers, Part,
    rows::{Row, aliases_of},
};

pub(super) const FAMILY: Family = Family {
    name: "Wan",
    architecture: "wan",
    part: Part::Denoiser,
    markers: &[
        &[
            "blocks.0.self_attn.q.weight",
            "blocks.0.cross_attn.q.weight",
        ],
        &[
            "blocks.0.attn1.to_q.weight",
            "blocks.0.ffn.net.0.proj.weight",
        ],
    ],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let attention = [("self_attn", "attn1"), ("cross_attn", "attn2")];
    let mut rows: Vec<Row> = attention
        .iter()
        .flat_map(|names| projections(*names))
        .collect();
    rows.extend(NAMES.iter().map(|names| Row::same(names)));
    aliases_of(&rows, layers)
}

fn projections((own, other): (&str, &str)) -> impl Iterator<Item = Row> {
    PROJECTIONS.iter().map(move |[ours, theirs]| {
        let ours = format!("blocks.{{}}.{own}.{ours}");
        Row::same(&[&ours, &format!("blocks.{{}}.{other}.{theirs}")])
    })
}

const PROJECTIONS: &[[&str; 2]] = &[
    ["q", "to_q"],
    ["k", "to_k"],
    ["v", "to_v"],
    ["o", "to_out.0"],
    ["norm_q", "norm_q"],
    ["norm_k", "norm_k"],
    ["k_img", "add_k_proj"],
    ["v_img", "add_v_proj"],
    ["norm_k_img", "norm_added_k"],
];

const NAMES: &[[&str; 2]] = &[
    ["blocks.{}.ffn.0", "blocks.{}.ffn.net.0.proj"],
    ["blocks.{}.ffn.2", "blocks.{}.ffn.net.2"],
    ["blocks.{}.norm3", "blocks.{}.norm2"],
    [
        "time_embedding.0",
        "condition_embedder.time_embedder.linear_1",
    ],
    [
        "time_embedding.2",
        "condition_embedder.time_embedder.linear_2",
    ],
    ["time_projection.1", "condition_embedder.time_proj"],
    [
        "text_embedding.0",
        "condition_embedder.text_embedder.linear_1",
    ],
    [
        "text_embedding.2",
        "condition_embedder.text_embedder.linear_2",
    ],
    ["img_emb.proj.0", "condition_embedder.image_embedder.norm1"],
    [
        "img_emb.proj.1",
        "condition_embedder.image_embedder.ff.net.0.proj",
    ],
    [
        "img_emb.proj.3",
        "condition_embedder.image_embedder.ff.net.2",
    ],
    ["img_emb.proj.4", "condition_embedder.image_embedder.norm2"],
    ["head.head", "proj_out"],
    ["head.modulation", "scale_shift_table"],
    ["blocks.{}.modulation", "blocks.{}.scale_shift_table"],
];
