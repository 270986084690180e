//! The kinds that read the base, against the libraries they come from, at every strength those ran.

use std::{path::Path, sync::Arc};

use overglaze_patches::{AdapterConfig, PatchSet};
use serde_json::Value;

use crate::{
    fixtures::{assert_close, device},
    golden_case::{Activation, Case, Layer},
};

/// The strength of an expected output: in its name, or the case's.
fn strength(case: &Case, expect: &str) -> f32 {
    let named = expect.strip_prefix("out.strength_");
    let text = named.map(|rest| rest.trim_end_matches(".y").to_owned());
    let text = text.unwrap_or_else(|| case.json("patches")[0]["weight"].to_string());
    text.parse().expect("a number")
}

fn check_layer(name: &str) {
    let case = Case::read(name);
    let layer = Layer::read(&case, &case.json("module"), "param.");
    let patch = case.patch("patch.0.", &Value::Null);
    for expect in case.listed("expect") {
        let strength = strength(&case, expect);
        let (weight, bias) = layer.merged(&[(Arc::clone(&patch), strength)]);
        let input = Activation::read(&case, &layer.shape);
        let output = layer.forward(&input, &weight, bias.as_ref());
        assert_close(output.values(), case.flat(expect), TOLERANCE);
    }
}

fn check_folder(name: &str) {
    let case = Case::read(name);
    let config = AdapterConfig::from_json(Path::new(name), &case.metadata["adapter_config"]);
    let tensors = case.group("adapter.").tensors;
    let set = PatchSet::from_tensors(name, tensors, Some(&config.expect("JSON")), &device());
    let set = set.expect("an adapter");
    assert!(set.refused.is_empty() && set.unread.is_empty(), "{name}");
    let mut activation = None;
    for module in case.json("module")["layers"].as_array().expect("layers") {
        let path = module["path"].as_str().expect("a path");
        let layer = Layer::read(&case, module, &format!("param.{path}."));
        let mut entries = set.entries.iter();
        let entry = entries.find(|entry| entry.target.as_str() == path);
        let patch = Arc::clone(&entry.expect("a patch").patch);
        let (weight, bias) = layer.merged(&[(patch, 1.0)]);
        let input = activation.unwrap_or_else(|| Activation::read(&case, &layer.shape));
        activation = Some(layer.forward(&input, &weight, bias.as_ref()));
    }
    let output = activation.expect("layers").values();
    assert_close(output, case.flat(&case.metadata["expect"]), TOLERANCE);
}

#[test]
fn dora() {
    for name in [
        "lycoris_dora_linear_out_ns",
        "lycoris_dora_linear_out_sq",
        "lycoris_dora_linear_in_ns",
        "lycoris_dora_conv3x3_in",
        "lycoris_loha_dora_out",
        "lycoris_loha_dora_in",
        "lycoris_lokr_dora_out",
        "lycoris_lokr_dora_in",
        "linear_dora_out_as_scale_w1",
        "conv2d_dora_out_as_scale_w1",
        "linear_dora_in_bias_f32",
        "linear_dora_in_nobias_f32",
        "linear_dora_out_bias_f32",
        "linear_dora_out_nobias_f32",
        "linear_dora_out_noalpha_w1_bias_f32",
        "linear_dora_out_noalpha_w1_nobias_f32",
        "conv2d_dora_in_bias_f32",
        "conv2d_dora_in_nobias_f32",
        "conv2d_dora_out_bias_f32",
        "conv2d_dora_out_nobias_f32",
    ] {
        check_layer(name);
    }
    check_folder("peft_dora");
    check_folder("peft_dora_conv");
}

#[test]
fn ia3() {
    for name in [
        "lycoris_ia3_out",
        "lycoris_ia3_in",
        "conv2d_ia3_out_w0.7",
        "conv2d_ia3_in_bias_f32",
        "conv2d_ia3_in_nobias_f32",
        "linear_ia3_in_bias_f32",
        "linear_ia3_in_nobias_f32",
        "linear_ia3_out_bias_f32",
        "linear_ia3_out_nobias_f32",
    ] {
        check_layer(name);
    }
    check_folder("peft_ia3");
}

#[test]
fn rotations() {
    for name in [
        "lycoris_oft_linear",
        "lycoris_oft_linear_rescale",
        "lycoris_oft_conv3x3",
        "lycoris_boft_linear",
    ] {
        check_layer(name);
    }
    for name in [
        "peft_oft_old",
        "peft_oft_new_exact",
        "peft_oft_new_neumann",
        "peft_oft_new_shared",
    ] {
        check_folder(name);
    }
}

/// The matrices that all layers share are refused with them, by the adapter's name.
#[test]
fn vera_is_refused_whole() {
    let case = Case::read("peft_vera");
    let tensors = case.group("adapter.").tensors;
    let set = PatchSet::from_tensors("vera", tensors, None, &device()).expect("an adapter");
    assert!(set.entries.is_empty() && set.unread.is_empty());
    assert_eq!((set.refused.len(), set.num_keys()), (2, 4));
    for group in &set.refused {
        let found = group.error.to_string();
        assert!(
            found.contains("VeRA: vera adapters scale two random matrices"),
            "{found}"
        );
    }
}

/// The cases' own suggestion: f32 sums of up to 108 products, in another order than the peer's.
const TOLERANCE: f32 = 2e-5;
