//! Stable Diffusion 3 and 3.5 in Stability's and diffusers naming.
//!
//! The last block's text stream only modulates, shift before scale; diffusers has the halves the other way round.

use super::{
    Alias, Family, Layers, Part,
    rows::{Row, aliases_of},
};

pub(super) const FAMILY: Family = Family {
    name: "Stable Diffusion 3",
    architecture: "sd3",
    part: Part::Denoiser,
    markers: &[
        &["joint_blocks.0.x_block.attn.qkv.weight"],
        &[
            "pos_embed.proj.weight",
            "time_text_embed.text_embedder.linear_1.weight",
        ],
    ],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let mut rows: Vec<Row> = NAMES.iter().map(|names| Row::same(names)).collect();
    rows.extend(STACKED.iter().map(|(name, parts)| Row::fused(name, parts)));
    rows.push(Row::swapped(
        "final_layer.adaLN_modulation.1",
        "norm_out.linear",
    ));
    rows.extend(context_modulation(layers));
    aliases_of(&rows, layers)
}

/// A context stream's modulation: six times the width, or two in the last block.
fn context_modulation(layers: &Layers) -> Vec<Row> {
    let block = |path: &String| {
        let stability = path.strip_prefix("joint_blocks.");
        let index =
            stability.and_then(|rest| rest.strip_suffix(".context_block.adaLN_modulation.1"));
        let diffusers = path.strip_prefix("transformer_blocks.");
        let other = diffusers.and_then(|rest| rest.strip_suffix(".norm1_context.linear"));
        let index = index.or(other)?;
        let names = [
            format!("joint_blocks.{index}.context_block.adaLN_modulation.1"),
            format!("transformer_blocks.{index}.norm1_context.linear"),
        ];
        let shape = layers.get(path)?;
        Some(match shape.d_output() == 2 * shape.fan_in() {
            true => Row::swapped(&names[0], &names[1]),
            false => Row::same(&names.each_ref().map(String::as_str)),
        })
    };
    layers.keys().filter_map(block).collect()
}

const NAMES: &[[&str; 2]] = &[
    ["x_embedder.proj", "pos_embed.proj"],
    [
        "t_embedder.mlp.0",
        "time_text_embed.timestep_embedder.linear_1",
    ],
    [
        "t_embedder.mlp.2",
        "time_text_embed.timestep_embedder.linear_2",
    ],
    ["y_embedder.mlp.0", "time_text_embed.text_embedder.linear_1"],
    ["y_embedder.mlp.2", "time_text_embed.text_embedder.linear_2"],
    ["final_layer.linear", "proj_out"],
    [
        "joint_blocks.{}.x_block.adaLN_modulation.1",
        "transformer_blocks.{}.norm1.linear",
    ],
    [
        "joint_blocks.{}.x_block.attn.proj",
        "transformer_blocks.{}.attn.to_out.0",
    ],
    [
        "joint_blocks.{}.x_block.attn2.proj",
        "transformer_blocks.{}.attn2.to_out.0",
    ],
    [
        "joint_blocks.{}.context_block.attn.proj",
        "transformer_blocks.{}.attn.to_add_out",
    ],
    [
        "joint_blocks.{}.x_block.attn.ln_q",
        "transformer_blocks.{}.attn.norm_q",
    ],
    [
        "joint_blocks.{}.x_block.attn.ln_k",
        "transformer_blocks.{}.attn.norm_k",
    ],
    [
        "joint_blocks.{}.x_block.attn2.ln_q",
        "transformer_blocks.{}.attn2.norm_q",
    ],
    [
        "joint_blocks.{}.x_block.attn2.ln_k",
        "transformer_blocks.{}.attn2.norm_k",
    ],
    [
        "joint_blocks.{}.context_block.attn.ln_q",
        "transformer_blocks.{}.attn.norm_added_q",
    ],
    [
        "joint_blocks.{}.context_block.attn.ln_k",
        "transformer_blocks.{}.attn.norm_added_k",
    ],
    [
        "joint_blocks.{}.x_block.mlp.fc1",
        "transformer_blocks.{}.ff.net.0.proj",
    ],
    [
        "joint_blocks.{}.x_block.mlp.fc2",
        "transformer_blocks.{}.ff.net.2",
    ],
    [
        "joint_blocks.{}.context_block.mlp.fc1",
        "transformer_blocks.{}.ff_context.net.0.proj",
    ],
    [
        "joint_blocks.{}.context_block.mlp.fc2",
        "transformer_blocks.{}.ff_context.net.2",
    ],
];

const STACKED: &[(&str, [&str; 3])] = &[
    (
        "joint_blocks.{}.x_block.attn.qkv",
        [
            "transformer_blocks.{}.attn.to_q",
            "transformer_blocks.{}.attn.to_k",
            "transformer_blocks.{}.attn.to_v",
        ],
    ),
    (
        "joint_blocks.{}.x_block.attn2.qkv",
        [
            "transformer_blocks.{}.attn2.to_q",
            "transformer_blocks.{}.attn2.to_k",
            "transformer_blocks.{}.attn2.to_v",
        ],
    ),
    (
        "joint_blocks.{}.context_block.attn.qkv",
        [
            "transformer_blocks.{}.attn.add_q_proj",
            "transformer_blocks.{}.attn.add_k_proj",
            "transformer_blocks.{}.attn.add_v_proj",
        ],
    ),
];
