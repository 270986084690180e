//! Krea-2 in its own and diffusers naming.

use super::{
    Alias, Family, Layers, Part,
    rows::{Row, aliases_of},
};

pub(super) const FAMILY: Family = Family {
    name: "Krea-2",
    architecture: "krea2",
    part: Part::Denoiser,
    markers: &[
        &["txtfusion.projector.weight", "blocks.0.attn.wq.weight"],
        &[
            "text_fusion.projector.weight",
            "transformer_blocks.0.attn.to_q.weight",
        ],
    ],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let mut rows: Vec<Row> = BLOCKS
        .iter()
        .flat_map(|[own, other]| {
            LEAVES.iter().map(move |[ours, theirs]| {
                Row::same(&[
                    &format!("{own}.{{}}.{ours}"),
                    &format!("{other}.{{}}.{theirs}"),
                ])
            })
        })
        .collect();
    rows.extend(ENDS.iter().map(|names| Row::same(names)));
    aliases_of(&rows, layers)
}

const BLOCKS: &[[&str; 2]] = &[
    ["blocks", "transformer_blocks"],
    ["txtfusion.layerwise_blocks", "text_fusion.layerwise_blocks"],
    ["txtfusion.refiner_blocks", "text_fusion.refiner_blocks"],
];

const LEAVES: &[[&str; 2]] = &[
    ["attn.wq", "attn.to_q"],
    ["attn.wk", "attn.to_k"],
    ["attn.wv", "attn.to_v"],
    ["attn.wo", "attn.to_out.0"],
    ["attn.gate", "attn.to_gate"],
    ["mlp.gate", "ff.gate"],
    ["mlp.up", "ff.up"],
    ["mlp.down", "ff.down"],
];

const ENDS: &[[&str; 2]] = &[
    ["txtfusion.projector", "text_fusion.projector"],
    ["first", "img_in"],
    ["tmlp.0", "time_embed.linear_1"],
    ["tmlp.2", "time_embed.linear_2"],
    ["tproj.1", "time_mod_proj"],
    ["txtmlp.1", "txt_in.linear_1"],
    ["txtmlp.3", "txt_in.linear_2"],
    ["last.linear", "final_layer.linear"],
];
