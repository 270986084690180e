//! Z-Image in its own naming, which stacks query, key and value, and in diffusers'.

use super::{
    Alias, Family, Layers, Part,
    rows::{Row, aliases_of},
};

pub(super) const FAMILY: Family = Family {
    name: "Z-Image",
    architecture: "lumina2",
    part: Part::Denoiser,
    markers: &[
        &["layers.0.attention.qkv.weight", "cap_embedder.1.weight"],
        &["layers.0.attention.to_q.weight", "cap_embedder.1.weight"],
    ],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let mut rows: Vec<Row> = BLOCKS.iter().flat_map(|block| attention(block)).collect();
    rows.extend(ENDS.iter().map(|names| Row::same(names)));
    aliases_of(&rows, layers)
}

fn attention(block: &str) -> [Row; 4] {
    let name = |path: &str| format!("{block}.{{}}.attention.{path}");
    let same = |own: &str, other: &str| Row::same(&[&name(own), &name(other)]);
    let parts = ["to_q", "to_k", "to_v"].map(name);
    [
        Row::fused(&name("qkv"), &parts.each_ref().map(String::as_str)),
        same("out", "to_out.0"),
        same("q_norm", "norm_q"),
        same("k_norm", "norm_k"),
    ]
}

const BLOCKS: [&str; 3] = ["layers", "noise_refiner", "context_refiner"];

/// diffusers names these after the patch size.
const ENDS: &[[&str; 2]] = &[
    ["x_embedder", "all_x_embedder.2-1"],
    ["final_layer.linear", "all_final_layer.2-1.linear"],
    [
        "final_layer.adaLN_modulation.1",
        "all_final_layer.2-1.adaLN_modulation.1",
    ],
];
