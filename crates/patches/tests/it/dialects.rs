//! Keys as they stand in public files, and what is read from them.

use overglaze_patches::{
    FileKey, TargetName,
    dialects::{dialects, split_suffix},
};

fn read(key: &str) -> Vec<(&'static str, FileKey)> {
    let claims = dialects()
        .into_iter()
        .filter_map(|dialect| Some((dialect.name, (dialect.parse)(key)?)));
    claims.filter(|(name, _)| *name != "test-echo").collect()
}

fn check(key: &str, dialect: &str, target: TargetName, suffix: &str) {
    let expected = FileKey {
        target,
        suffix: suffix.into(),
    };
    assert_eq!(read(key), [(dialect, expected)], "{key}");
}

fn dotted(name: &str) -> TargetName {
    TargetName::Dotted(name.into())
}

fn flat(name: &str) -> TargetName {
    TargetName::Flattened(name.into())
}

const TO_Q: &str = "transformer_blocks.0.attn.to_q";
const OUT: &str = "transformer_blocks.0.attn.to_out.0";
/// Key, target, canonical suffix.
const DIFFUSERS: &[[&str; 3]] = &[
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_A.weight",
        TO_Q,
        "lora_down.weight",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_B.weight",
        TO_Q,
        "lora_up.weight",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_B.bias",
        TO_Q,
        "lora_up.bias",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_A.default.weight",
        TO_Q,
        "lora_down.weight",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_B.default_0.weight",
        TO_Q,
        "lora_up.weight",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_B.default.bias",
        TO_Q,
        "lora_up.bias",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_A",
        TO_Q,
        "lora_down.weight",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_B",
        TO_Q,
        "lora_up.weight",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.alpha",
        TO_Q,
        "alpha",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_out.0.lora.down.weight",
        OUT,
        "lora_down.weight",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_out.0.lora.up.weight",
        OUT,
        "lora_up.weight",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_out.0.lora_down.weight",
        OUT,
        "lora_down.weight",
    ],
    [
        "base_model.model.transformer_blocks.0.attn.to_q.lora_A.weight",
        TO_Q,
        "lora_down.weight",
    ],
    [
        "base_model.model.transformer.transformer_blocks.0.attn.to_out.0.lora_B.weight",
        OUT,
        "lora_up.weight",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_magnitude_vector",
        TO_Q,
        "lora_magnitude_vector",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_magnitude_vector.default.weight",
        TO_Q,
        "lora_magnitude_vector.default.weight",
    ],
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_embedding_A.default",
        TO_Q,
        "lora_embedding_A.default",
    ],
    [
        "base_model.model.transformer_blocks.0.attn.to_q.hada_w1_a",
        TO_Q,
        "hada_w1_a",
    ],
    ["transformer.proj_out.lokr_w1", "proj_out", "lokr_w1"],
    [
        "transformer.norm_out.linear.diff_b",
        "norm_out.linear",
        "diff_b",
    ],
    // ComfyUI's prefix, and no prefix at all.
    [
        "diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight",
        "double_blocks.0.img_attn.qkv",
        "lora_down.weight",
    ],
    [
        "transformer_blocks.0.attn.to_q.lora_A.weight",
        TO_Q,
        "lora_down.weight",
    ],
    [
        "transformer_blocks.0.attn.to_out.0.lora_down.weight",
        OUT,
        "lora_down.weight",
    ],
    [
        "double_blocks.0.img_attn.qkv.lora_B.default.bias",
        "double_blocks.0.img_attn.qkv",
        "lora_up.bias",
    ],
    [
        "double_blocks.0.img_attn.qkv.scale",
        "double_blocks.0.img_attn.qkv",
        "scale",
    ],
    ["img_in.alpha", "img_in", "alpha"],
    // No factor, and no kind has a use for it: the layer is refused.
    [
        "transformer.transformer_blocks.0.attn.to_q.lora_A.default.bias",
        TO_Q,
        "lora_A.default.bias",
    ],
    [
        "transformer.proj_out.lora_A.bias",
        "proj_out",
        "lora_A.bias",
    ],
    // Kinds of this test binary, and aliases they bring.
    ["transformer.proj_out.test_f", "proj_out", "test_full"],
    [
        "transformer.proj_out.test_f.some_name.values",
        "proj_out",
        "test_full",
    ],
    ["transformer.proj_out.test_full", "proj_out", "test_full"],
    [
        "transformer.proj_out.test_double_a",
        "proj_out",
        "test_double_a",
    ],
];

#[test]
fn diffusers_names() {
    for [key, target, suffix] in DIFFUSERS {
        check(key, "diffusers", dotted(target), suffix);
    }
}

/// Key, target, canonical suffix.
const KOHYA: &[[&str; 3]] = &[
    [
        "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight",
        "double_blocks_0_img_attn_qkv",
        "lora_down.weight",
    ],
    [
        "lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight",
        "double_blocks_0_img_attn_qkv",
        "lora_up.weight",
    ],
    [
        "lora_unet_double_blocks_0_img_mlp_0.alpha",
        "double_blocks_0_img_mlp_0",
        "alpha",
    ],
    [
        "lora_unet_single_blocks_7_linear1.dora_scale",
        "single_blocks_7_linear1",
        "dora_scale",
    ],
    [
        "lora_unet_transformer_blocks_0_attn_to_k.lokr_w1",
        "transformer_blocks_0_attn_to_k",
        "lokr_w1",
    ],
    [
        "lora_unet_output_blocks_2_1_transformer_blocks_7_attn2_to_k.hada_w2_b",
        "output_blocks_2_1_transformer_blocks_7_attn2_to_k",
        "hada_w2_b",
    ],
    [
        "lora_unet__blocks_0_self_attn_q.alpha",
        "blocks_0_self_attn_q",
        "alpha",
    ],
    ["lora_unet_blocks_0_to_q_.alpha", "blocks_0_to_q", "alpha"],
    [
        "lora_te1_text_model_encoder_layers_0_mlp_fc1.lora_down.weight",
        "lora_te1_text_model_encoder_layers_0_mlp_fc1",
        "lora_down.weight",
    ],
    [
        "lora_te_text_model_encoder_layers_0_self_attn_k_proj.alpha",
        "lora_te_text_model_encoder_layers_0_self_attn_k_proj",
        "alpha",
    ],
];

#[test]
fn kohya_names() {
    for [key, target, suffix] in KOHYA {
        check(key, "kohya", flat(target), suffix);
    }
}

#[test]
fn a_text_encoder_keeps_its_prefix() {
    let path = "text_encoder.text_model.encoder.layers.0.self_attn.q_proj";
    check(
        &format!("{path}.lora_A.weight"),
        "diffusers",
        dotted(path),
        "lora_down.weight",
    );
}

#[test]
fn other_spellings_are_nobodys() {
    for key in [
        "",
        ".",
        "alpha",
        ".alpha",
        "transformer.alpha",
        "lora_unet_.alpha",
        "lora_unet_a.b.alpha",
        "lora_transformer_a.alpha",
        "lycoris_transformer_blocks_0_attn_to_q.lokr_w1",
        "diffusion_model.alpha",
        "base_model.alpha",
        "0.to_q.alpha",
        "a-b.to_q.alpha",
        "double_blocks.0.img_attn.norm.query_norm.scale",
        "double_blocks.0.img_attn.qkv.weight",
        "unet.down_blocks.0.attn1.to_q.lora_A.weight",
        "double_blocks.0.processor.qkv_lora1.down.weight",
        "base_model.vera_A",
        "transformer.proj_out.weight",
        "transformer.proj_out.lora_C.weight",
        "transformer.proj_out.lora_A.default.extra.weight",
    ] {
        assert_eq!(read(key), [], "{key}");
    }
}

#[test]
fn a_key_is_split_at_its_longest_suffix() {
    assert_eq!(
        split_suffix("a.alpha.lora_A.weight"),
        Some(("a.alpha", "lora_down.weight".into()))
    );
    assert_eq!(
        split_suffix("a.scale.alpha"),
        Some(("a.scale", "alpha".into()))
    );
    assert_eq!(split_suffix("a.b1.weight"), Some(("a", "b1.weight".into())));
    assert_eq!(
        split_suffix("a.test_f..values"),
        None,
        "a name is not empty"
    );
    assert_eq!(split_suffix("a.test_f.b.c.values"), None);
    let long = format!("{}alpha", "a.".repeat(1_000_000));
    assert_eq!(
        split_suffix(&long).map(|(path, _)| path.len()),
        Some(1_999_999)
    );
}
