//! Anima (Cosmos-Predict2) in its own and diffusers naming.

use super::{
    Alias, Family, Layers, Part,
    rows::{Row, aliases_of},
};

pub(super) const FAMILY: Family = Family {
    name: "Anima",
    architecture: "cosmos",
    part: Part::Denoiser,
    markers: &[
        &[
            "blocks.0.self_attn.q_proj.weight",
            "x_embedder.proj.1.weight",
        ],
        &[
            "transformer_blocks.0.attn1.to_q.weight",
            "patch_embed.proj.weight",
            "norm_out.linear_1.weight",
        ],
    ],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let attention = [("self_attn", "attn1"), ("cross_attn", "attn2")];
    let modulation = [
        ("self_attn", "norm1"),
        ("cross_attn", "norm2"),
        ("mlp", "norm3"),
    ];
    let mut rows = Vec::new();
    for (own, other) in attention {
        rows.extend(PROJECTIONS.iter().map(|[ours, theirs]| {
            let theirs = format!("transformer_blocks.{{}}.{other}.{theirs}");
            Row::same(&[&format!("blocks.{{}}.{own}.{ours}"), &theirs])
        }));
    }
    for (own, other) in modulation {
        rows.extend([1, 2].map(|index| {
            let theirs = format!("transformer_blocks.{{}}.{other}.linear_{index}");
            Row::same(&[
                &format!("blocks.{{}}.adaln_modulation_{own}.{index}"),
                &theirs,
            ])
        }));
    }
    rows.extend(NAMES.iter().map(|names| Row::same(names)));
    aliases_of(&rows, layers)
}

const PROJECTIONS: &[[&str; 2]] = &[
    ["q_proj", "to_q"],
    ["k_proj", "to_k"],
    ["v_proj", "to_v"],
    ["output_proj", "to_out.0"],
    ["q_norm", "norm_q"],
    ["k_norm", "norm_k"],
];

const NAMES: &[[&str; 2]] = &[
    [
        "blocks.{}.mlp.layer1",
        "transformer_blocks.{}.ff.net.0.proj",
    ],
    ["blocks.{}.mlp.layer2", "transformer_blocks.{}.ff.net.2"],
    ["x_embedder.proj.1", "patch_embed.proj"],
    ["t_embedder.1.linear_1", "time_embed.t_embedder.linear_1"],
    ["t_embedder.1.linear_2", "time_embed.t_embedder.linear_2"],
    ["t_embedding_norm", "time_embed.norm"],
    ["final_layer.adaln_modulation.1", "norm_out.linear_1"],
    ["final_layer.adaln_modulation.2", "norm_out.linear_2"],
    ["final_layer.linear", "proj_out"],
];
