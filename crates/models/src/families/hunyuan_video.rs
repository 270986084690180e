//! `HunyuanVideo` in its own and diffusers naming; the blocks alone.

use super::{
    Alias, Family, Layers, Part,
    rows::{Row, Sizes, Spelling, aliases_of, whole},
};

pub(super) const FAMILY: Family = Family {
    name: "HunyuanVideo",
    architecture: "hyvid",
    part: Part::Denoiser,
    markers: &[
        &["double_blocks.0.img_attn_qkv.weight"],
        &[
            "transformer_blocks.0.norm1.linear.weight",
            "context_embedder.token_refiner.refiner_blocks.0.attn.to_q.weight",
        ],
    ],
    open_inputs: &[],
    aliases,
};

fn aliases(layers: &Layers) -> Vec<Alias> {
    let mut rows: Vec<Row> = NAMES.iter().map(|names| Row::same(names)).collect();
    rows.extend(STREAMS.iter().map(|(stream, parts)| {
        let parts = parts.map(|part| format!("transformer_blocks.{{}}.attn.{part}"));
        let stacked = format!("double_blocks.{{}}.{stream}_attn_qkv");
        Row::fused(&stacked, &parts.each_ref().map(String::as_str))
    }));
    let parts = ["attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"];
    let parts = parts.map(|path| format!("single_transformer_blocks.{{}}.{path}"));
    rows.push(Row::new(
        Sizes::AttentionAndRest,
        [
            whole("single_blocks.{}.linear1"),
            Spelling::Parts(parts.into()),
        ],
    ));
    aliases_of(&rows, layers)
}

const STREAMS: [(&str, [&str; 3]); 2] = [
    ("img", ["to_q", "to_k", "to_v"]),
    ("txt", ["add_q_proj", "add_k_proj", "add_v_proj"]),
];

const NAMES: &[[&str; 2]] = &[
    [
        "double_blocks.{}.img_mod.linear",
        "transformer_blocks.{}.norm1.linear",
    ],
    [
        "double_blocks.{}.txt_mod.linear",
        "transformer_blocks.{}.norm1_context.linear",
    ],
    [
        "double_blocks.{}.img_attn_proj",
        "transformer_blocks.{}.attn.to_out.0",
    ],
    [
        "double_blocks.{}.txt_attn_proj",
        "transformer_blocks.{}.attn.to_add_out",
    ],
    [
        "double_blocks.{}.img_attn_q_norm",
        "transformer_blocks.{}.attn.norm_q",
    ],
    [
        "double_blocks.{}.img_attn_k_norm",
        "transformer_blocks.{}.attn.norm_k",
    ],
    [
        "double_blocks.{}.txt_attn_q_norm",
        "transformer_blocks.{}.attn.norm_added_q",
    ],
    [
        "double_blocks.{}.txt_attn_k_norm",
        "transformer_blocks.{}.attn.norm_added_k",
    ],
    [
        "double_blocks.{}.img_mlp.fc1",
        "transformer_blocks.{}.ff.net.0.proj",
    ],
    [
        "double_blocks.{}.img_mlp.fc2",
        "transformer_blocks.{}.ff.net.2",
    ],
    [
        "double_blocks.{}.txt_mlp.fc1",
        "transformer_blocks.{}.ff_context.net.0.proj",
    ],
    [
        "double_blocks.{}.txt_mlp.fc2",
        "transformer_blocks.{}.ff_context.net.2",
    ],
    [
        "single_blocks.{}.linear2",
        "single_transformer_blocks.{}.proj_out",
    ],
    [
        "single_blocks.{}.modulation.linear",
        "single_transformer_blocks.{}.norm.linear",
    ],
    [
        "single_blocks.{}.q_norm",
        "single_transformer_blocks.{}.attn.norm_q",
    ],
    [
        "single_blocks.{}.k_norm",
        "single_transformer_blocks.{}.attn.norm_k",
    ],
];
