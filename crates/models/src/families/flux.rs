//! FLUX.1 in BFL and diffusers naming, and the names trainers made of them.
//!
//! `XLabs` (`x-flux`) names the attention processor: `double_blocks.N.processor.qkv_lora1` is the image stream's
//! `qkv`, `2` the text stream's; a single block's `qkv_lora` is the first three parts of `linear1`. `OneTrainer`
//! numbers the parts of a stacked layer: `img_attn.qkv.0` to `.2`, `linear1.0` to `.3`.

use super::{
    Alias, Family, Layers, Part,
    rows::{Row, Sizes, Spelling, aliases_of, apart, whole},
};

pub(super) const FAMILY: Family = Family {
    name: "FLUX.1",
    architecture: "flux",
    part: Part::Denoiser,
    markers: &[
        &[
            "vector_in.in_layer.weight",
            "img_in.weight",
            "txt_in.weight",
        ],
        &[
            "time_text_embed.text_embedder.linear_1.weight",
            "x_embedder.weight",
            "context_embedder.weight",
        ],
    ],
    open_inputs: OPEN_INPUTS,
    aliases,
};

/// What an image's tokens come in by.
pub(super) const OPEN_INPUTS: &[&str] = &["img_in", "x_embedder"];

/// The names trainers use that neither checkpoint has.
pub(crate) fn trainer_aliases(layers: &Layers) -> Vec<Alias> {
    let mut rows = attention();
    rows.push(linear1());
    aliases_of(&rows, layers)
}

fn aliases(layers: &Layers) -> Vec<Alias> {
    let mut rows = attention();
    rows.extend(embedders());
    rows.extend(feed_forward());
    rows.extend(modulation());
    rows.extend(norms());
    rows.extend(ends());
    rows.push(linear1());
    aliases_of(&rows, layers)
}

/// Timestep, guidance and pooled prompt.
fn embedders() -> Vec<Row> {
    let names = [
        ("time_in", "timestep_embedder"),
        ("vector_in", "text_embedder"),
        ("guidance_in", "guidance_embedder"),
    ];
    let pair = |(bfl, diffusers): (&str, &str)| {
        [("in_layer", "linear_1"), ("out_layer", "linear_2")].map(|(ours, theirs)| {
            let theirs = format!("time_text_embed.{diffusers}.{theirs}");
            Row::same(&[&format!("{bfl}.{ours}"), &theirs])
        })
    };
    names.into_iter().flat_map(pair).collect()
}

/// The first and last layers of FLUX.1 and its relatives.
pub(super) fn ends() -> Vec<Row> {
    vec![
        Row::same(&["img_in", "x_embedder"]),
        Row::same(&["txt_in", "context_embedder"]),
        Row::same(&["final_layer.linear", "proj_out"]),
        Row::swapped("final_layer.adaLN_modulation.1", "norm_out.linear"),
    ]
}

fn modulation() -> Vec<Row> {
    [
        [
            "double_blocks.{}.img_mod.lin",
            "transformer_blocks.{}.norm1.linear",
        ],
        [
            "double_blocks.{}.txt_mod.lin",
            "transformer_blocks.{}.norm1_context.linear",
        ],
        [
            "single_blocks.{}.modulation.lin",
            "single_transformer_blocks.{}.norm.linear",
        ],
    ]
    .map(|names| Row::same(&names))
    .into()
}

pub(super) fn feed_forward() -> Vec<Row> {
    [
        [
            "double_blocks.{}.img_mlp.0",
            "transformer_blocks.{}.ff.net.0.proj",
        ],
        [
            "double_blocks.{}.img_mlp.2",
            "transformer_blocks.{}.ff.net.2",
        ],
        [
            "double_blocks.{}.txt_mlp.0",
            "transformer_blocks.{}.ff_context.net.0.proj",
        ],
        [
            "double_blocks.{}.txt_mlp.2",
            "transformer_blocks.{}.ff_context.net.2",
        ],
    ]
    .map(|names| Row::same(&names))
    .into()
}

/// Query and key norms.
pub(super) fn norms() -> Vec<Row> {
    let double = "transformer_blocks.{}.attn";
    let single = "single_transformer_blocks.{}.attn";
    [
        (
            "double_blocks.{}.img_attn.norm.query_norm",
            double,
            "norm_q",
        ),
        ("double_blocks.{}.img_attn.norm.key_norm", double, "norm_k"),
        (
            "double_blocks.{}.txt_attn.norm.query_norm",
            double,
            "norm_added_q",
        ),
        (
            "double_blocks.{}.txt_attn.norm.key_norm",
            double,
            "norm_added_k",
        ),
        ("single_blocks.{}.norm.query_norm", single, "norm_q"),
        ("single_blocks.{}.norm.key_norm", single, "norm_k"),
    ]
    .map(|(bfl, path, name)| Row::same(&[bfl, &format!("{path}.{name}")]))
    .into()
}

/// The attention of double blocks.
pub(super) fn attention() -> Vec<Row> {
    let stream = |name: &str, number: u8, parts: [&str; 3], out: &str| {
        let bfl = |suffix: &str| format!("double_blocks.{{}}.{name}_attn.{suffix}");
        let diffusers = |path: &str| format!("transformer_blocks.{{}}.attn.{path}");
        let xlabs = |layer: &str| format!("double_blocks.{{}}.processor.{layer}_lora{number}");
        let parts = parts.map(diffusers);
        let numbered = [0, 1, 2].map(|part| bfl(&format!("qkv.{part}")));
        [
            Row::fused(&bfl("qkv"), &parts.each_ref().map(String::as_str))
                .or(apart(&numbered.each_ref().map(String::as_str)))
                .or(whole(&xlabs("qkv"))),
            Row::same(&[&bfl("proj"), &diffusers(out), &xlabs("proj")]),
        ]
    };
    let image = stream("img", 1, ["to_q", "to_k", "to_v"], "to_out.0");
    let text = stream(
        "txt",
        2,
        ["add_q_proj", "add_k_proj", "add_v_proj"],
        "to_add_out",
    );
    image.into_iter().chain(text).chain([linear2()]).collect()
}

/// What a single block multiplies its input with: query, key, value and the MLP's first layer.
fn linear1() -> Row {
    let diffusers = ["attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"]
        .map(|path| format!("single_transformer_blocks.{{}}.{path}"));
    let numbered = [0, 1, 2, 3].map(|part| format!("single_blocks.{{}}.linear1.{part}"));
    Row::new(
        Sizes::AttentionAndRest,
        [
            whole("single_blocks.{}.linear1"),
            Spelling::Parts(diffusers.into()),
            Spelling::Parts(numbered.into()),
            Spelling::Stack("single_blocks.{}.processor.qkv_lora".into(), 0..3),
        ],
    )
}

fn linear2() -> Row {
    Row::same(&[
        "single_blocks.{}.linear2",
        "single_transformer_blocks.{}.proj_out",
        "single_blocks.{}.processor.proj_lora",
    ])
}

/// The rows Chroma shares.
pub(super) fn unmodulated() -> Vec<Row> {
    let mut rows = attention();
    rows.extend(feed_forward());
    rows.extend(norms());
    rows.push(linear1());
    rows
}
