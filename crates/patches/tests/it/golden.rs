//! Outputs of peers (see `tests/data/README.md`): merged and by sidecar.

use std::{path::Path, sync::Arc};

use burn::tensor::{FloatDType, Tensor};
use overglaze_patches::{
    AdapterConfig, Patch, PatchSet, RowPart, RowRanges, at_strength, slice_rows,
};
use serde_json::Value;

use crate::{
    fixtures::{assert_close, device},
    golden_case::{Activation, Case, Layer},
};

/// The output of `layer` with the patches, by both paths, which must agree with `expected`.
fn check(
    case: &Case,
    layer: &Layer,
    patches: &[(Arc<dyn Patch>, f32)],
    expected: &str,
    tolerance: f32,
) {
    let input = Activation::read(case, &layer.shape);
    let (weight, bias) = layer.merged(patches);
    let merged = layer.forward(&input, &weight, bias.as_ref());
    assert_close(merged.values(), case.flat(expected), tolerance);
    if !layer.shape.is_matrix() {
        return;
    }
    let mut output = layer.forward(&input, &layer.weight, bias.as_ref());
    for (patch, strength) in patches {
        let patch = at_strength(patch, *strength);
        if let Some(term) = layer.sidecar(&input, patch.as_ref(), tolerance) {
            output = output.plus(term);
        }
    }
    assert_close(output.values(), case.flat(expected), tolerance);
}

/// Runs a case of one layer: every expected output and merged parameter.
fn run(name: &str) {
    let case = Case::read(name);
    run_with(&case, |patch| Arc::clone(patch), case.tolerance());
}

/// As [`run`], with the patches changed by `change`.
fn run_with(case: &Case, change: impl Fn(&Arc<dyn Patch>) -> Arc<dyn Patch>, tolerance: f32) {
    let layer = Layer::read(case, &case.json("module"), "param.");
    let described = case.json("patches");
    let described = described.as_array().cloned().unwrap_or(vec![Value::Null]);
    let expect = case.listed("expect");
    assert!(!expect.is_empty(), "the case expects nothing");
    for expected in expect {
        let stated = expected.strip_prefix("out.strength_").map(|rest| {
            let strength = rest.strip_suffix(".y").expect("an output");
            strength.parse::<f64>().expect("a strength")
        });
        let patches: Vec<_> = described
            .iter()
            .enumerate()
            .map(|(index, described)| {
                let patch = change(&case.patch(&format!("patch.{index}."), described));
                #[expect(clippy::cast_possible_truncation, reason = "strengths are f32")]
                let strength = stated.or(described["weight"].as_f64()).unwrap_or(1.0) as f32;
                (patch, strength)
            })
            .collect();
        check(case, &layer, &patches, expected, tolerance);
        check_merged(case, &layer, &patches, tolerance);
    }
}

fn check_merged(case: &Case, layer: &Layer, patches: &[(Arc<dyn Patch>, f32)], tolerance: f32) {
    let (weight, bias) = layer.merged(patches);
    for key in case.listed("expect_merged") {
        let found = match key.rsplit_once('.').expect("a parameter").1 {
            "weight" => weight.clone().flatten(0, 1),
            "bias" => bias.clone().expect("a bias"),
            other => panic!("unknown parameter {other}"),
        };
        assert_close(found, case.flat(key), tolerance);
    }
}

macro_rules! cases {
    ($($test:ident: $($name:literal)+;)+) => {
        $(
            #[test]
            fn $test() {
                for name in [$($name),+] {
                    run(name);
                }
            }
        )+
    };
}

cases! {
    lora:
        "linear_lora_alpha2_bias_f32" "linear_lora_alpha2_nobias_f32" "linear_lora_noalpha_bias_f32"
        "linear_lora_noalpha_nobias_f32" "linear_lora_negweight_bias_f32" "linear_lora_negweight_nobias_f32"
        "linear_lora_dense_bias_bias_f32" "linear_lora_dense_bias_nobias_f32"
        "linear_lora_rank_mismatch_bias_f32" "linear_lora_rank_mismatch_nobias_f32"
        "linear_lora_sparse_bias_bias_f32" "lycoris_lora_linear" "lycoris_lora_linear_rs";
    lora_on_convolutions:
        "conv1d_lora_bias_f32" "conv2d_lora_bias_f32" "conv2d_lora_noalpha_nobias_f32"
        "conv2d_lora_dense_bias_bias_f32" "lycoris_lora_conv1x1" "lycoris_lora_conv3x3"
        "lycoris_lora_conv3x3_stride2";
    c10_lora_with_a_middle_factor:
        "conv2d_lora_mid_bias_f32" "conv2d_lora_mid_nobias_f32" "lycoris_lora_conv3x3_tucker";
    control_lora:
        "linear_flux_control_bias_f32" "linear_flux_control_nobias_f32" "linear_flux_control_bias_bias_f32"
        "linear_flux_control_bias_nobias_f32" "linear_stack_flux_control_lora_bias_f32";
    loha:
        "linear_loha_bias_f32" "linear_loha_noalpha_nobias_f32" "conv1d_loha_bias_f32" "conv2d_loha_bias_f32"
        "conv2d_loha_tucker_bias_f32" "lycoris_loha_linear" "lycoris_loha_conv3x3";
    lokr:
        "linear_lokr_full_full_alpha_bias_f32" "linear_lokr_full_lr_bias_f32" "linear_lokr_lr_full_nobias_f32"
        "linear_lokr_lr_lr_bias_f32" "lycoris_lokr_linear_full_full" "lycoris_lokr_linear_full_lr"
        "lycoris_lokr_linear_lr_lr" "lycoris_lokr_rs";
    lokr_on_convolutions:
        "conv2d_lokr_full_full_bias_f32" "conv2d_lokr_full_lr_nobias_f32" "conv2d_lokr_full_tucker_bias_f32"
        "conv2d_lokr_lr_full_bias_f32" "lycoris_lokr_conv3x3_full_full" "lycoris_lokr_conv3x3_full_lr";
    glora:
        "lycoris_glora_linear";
    full:
        "linear_full_bias_f32" "linear_full_bias_bias_f32" "conv1d_full_bias_bias_f32" "conv2d_full_nobias_f32"
        "conv2d_full_bias_bias_f32" "lycoris_full_linear" "lycoris_full_conv";
    norm:
        "layer_norm_norm_f32" "group_norm_norm_f32" "lycoris_norm_layer";
    set_parameter:
        "linear_set_weight_bias_f32" "linear_set_weight_nobias_f32" "linear_set_bias_bias_f32"
        "conv2d_set_weight_bias_f32" "conv2d_set_bias_bias_f32" "flux_rms_norm_set_f32";
    stacks:
        "linear_stack_lora_loha_lokr_bias_f32" "linear_stack_set_lora_bias_f32"
        "conv2d_stack_lora_loha_full_bias_f32";
}

/// The peer rounds its output to the dtype: 8 and 11 bits of numbers up to about 4. Patches in f32 and in their
/// own dtype.
#[test]
fn half_precision() {
    for name in [
        "linear_lora_alpha2_bias_bf16",
        "linear_lora_alpha2_bias_f16",
        "linear_loha_bias_bf16",
        "linear_lokr_full_lr_bias_bf16",
        "linear_full_bias_bias_bf16",
        "linear_set_weight_bias_bf16",
        "conv2d_lora_mid_bias_bf16",
        "layer_norm_norm_bf16",
        "flux_rms_norm_set_bf16",
    ] {
        let case = Case::read(name);
        for dtype in [FloatDType::F32, FloatDType::BF16] {
            let copy = |patch: &Arc<dyn Patch>| patch.to_device(&device(), dtype);
            run_with(&case, copy, case.tolerance());
        }
        run(name);
    }
}

#[test]
fn fused_rows() {
    for name in ["linear_merged_qkv_bias_f32", "linear_merged_qkv_nobias_f32"] {
        let case = Case::read(name);
        let layer = Layer::read(&case, &case.json("module"), "param.");
        let parts = (0..3_usize).map(|part| RowPart {
            rows: 8 * part..8 * (part + 1),
            patch: case.patch(&format!("patch.0.sub.{part}."), &Value::Null),
        });
        let patch = RowRanges::new(24, parts.collect()).expect("the parts lie apart");
        let strength = case.json("patches")[0]["weight"]
            .as_f64()
            .expect("a strength");
        #[expect(clippy::cast_possible_truncation, reason = "strengths are f32")]
        let patches = [(Arc::new(patch) as Arc<dyn Patch>, strength as f32)];
        check(
            &case,
            &layer,
            &patches,
            &case.metadata["expect"],
            case.tolerance(),
        );
        check_merged(&case, &layer, &patches, case.tolerance());
    }
}

/// The cut rows of a whole patch are the rows of its residual, on the rows of the base.
#[test]
fn split_rows() {
    for name in [
        "linear_lora_dense_bias_bias_f32",
        "linear_lora_sparse_bias_bias_f32",
        "linear_loha_bias_f32",
        "conv2d_loha_tucker_bias_f32",
        "linear_lokr_full_lr_bias_f32",
        "conv2d_lora_mid_bias_f32",
        "lycoris_glora_linear",
        "linear_full_bias_bias_f32",
        "linear_set_weight_bias_f32",
        "linear_set_bias_bias_f32",
    ] {
        let case = Case::read(name);
        let whole = Layer::read(&case, &case.json("module"), "param.");
        let patch = case.patch("patch.0.", &case.json("patches")[0]);
        // Not at a multiple of anything.
        let rows = 5..10;
        let part = slice_rows(&patch, rows.clone());
        let cut = Layer {
            shape: whole.shape.with_rows(5),
            weight: whole.weight.clone().slice_dim(0, rows.clone()),
            bias: whole.bias.clone().map(|bias| bias.slice([rows.clone()])),
            module: whole.module.clone(),
        };
        part.check(&cut.shape).expect("the rows fit");
        let deltas = [
            patch.delta_weight(&whole.base()),
            part.delta_weight(&cut.base()),
        ]
        .map(|delta| delta.expect("the base is there"));
        if let [Some(expected), Some(found)] = deltas {
            assert_close(found, expected.slice_dim(0, rows.clone()), case.tolerance());
        }
        let deltas = [
            patch.delta_bias(&whole.base()),
            part.delta_bias(&cut.base()),
        ]
        .map(|delta| delta.expect("the base is there"));
        if let [Some(expected), Some(found)] = deltas {
            assert_close(found, expected.slice([rows]), case.tolerance());
        }
    }
}

/// Whole PEFT folders: the layers in a row, each with its patch.
#[test]
fn peft_folders() {
    for name in [
        "peft_lora",
        "peft_rslora",
        "peft_lora_bias",
        "peft_lora_conv",
        "peft_lora_embedding",
        "peft_lora_fan_in_fan_out",
        "peft_loha",
        "peft_lokr",
    ] {
        let case = Case::read(name);
        let config = AdapterConfig::from_json(Path::new(name), &case.metadata["adapter_config"]);
        let tensors = case.group("adapter.").tensors;
        let set = PatchSet::from_tensors(name, tensors, Some(&config.expect("JSON")), &device());
        let set = set.expect("an adapter");
        let mut by_merge = None;
        let mut by_sidecar = None;
        for module in case.json("module")["layers"].as_array().expect("layers") {
            let path = module["path"].as_str().expect("a path");
            let layer = Layer::read(&case, module, &format!("param.{path}."));
            let entry = set
                .entries
                .iter()
                .find(|entry| entry.target.as_str() == path);
            let patch = Arc::clone(&entry.expect("a patch").patch);
            let input = || Activation::read(&case, &layer.shape);
            let (weight, bias) = layer.merged(&[(Arc::clone(&patch), 1.0)]);
            let merge_input = by_merge.unwrap_or_else(input);
            let sidecar_input = by_sidecar.unwrap_or_else(input);
            by_merge = Some(layer.forward(&merge_input, &weight, bias.as_ref()));
            let base = layer.forward(&sidecar_input, &layer.weight, bias.as_ref());
            let term = layer.sidecar(&sidecar_input, patch.as_ref(), case.tolerance());
            by_sidecar = Some(base.plus(term.expect("a residual")));
        }
        let expected: Tensor<1> = case.flat(&case.metadata["expect"]);
        for output in [by_merge, by_sidecar] {
            let output = output.expect("layers").values();
            assert_close(output, expected.clone(), case.tolerance());
        }
    }
}
