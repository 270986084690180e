//! PEFT configurations and the scales they give.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error as _,
    path::Path,
};

use overglaze_patches::{AdapterConfig, PatchError, PatchSet};

use crate::fixtures::{delta, device, matrix, message, wave};

fn read(json: &str) -> Result<AdapterConfig, PatchError> {
    AdapterConfig::from_json(Path::new("a/config.json"), json)
}

fn alpha(json: &str, target: &str, rank: usize) -> Option<f32> {
    read(json)
        .expect("a configuration")
        .layer(target)
        .effective_alpha(rank)
}

#[test]
fn alpha_over_rank_is_the_scale() {
    let plain = r#"{"peft_type": "LORA", "r": 8, "lora_alpha": 4, "alpha_pattern": {}, "layer_replication": null, "use_rslora": false, "init_lora_weights": true}"#;
    assert_eq!(alpha(plain, "a.to_q", 8), Some(4.0));
    assert_eq!(
        alpha(
            r#"{"peft_type": "LOHA", "r": 8, "alpha": 2.5}"#,
            "a.to_q",
            8
        ),
        Some(2.5)
    );
    assert_eq!(alpha(r#"{"r": 8}"#, "a.to_q", 8), None);
    let config = read(plain).expect("a configuration");
    assert_eq!(config.peft_type(), Some("LORA"));
}

#[test]
fn rslora_divides_by_the_root() {
    let json = r#"{"r": 16, "lora_alpha": 8, "use_rslora": true}"#;
    let alpha = alpha(json, "a.to_q", 16).expect("an alpha");
    assert_eq!(alpha / 16.0, 8.0 / 4.0);
}

#[test]
fn patterns_match_whole_names_at_the_end_of_a_path() {
    let json = r#"{"lora_alpha": 1, "alpha_pattern": {
        "to_q": 2, "blocks.0.attn.to_k": 3, "blocks\\.[12]\\.ff": 4, "z|to_v": 5, "to_v": 6, "^top": 7
    }}"#;
    for (target, expected) in [
        ("blocks.0.attn.to_q", 2.0),
        ("to_q", 2.0),
        ("blocks.0.attn.add_to_q", 1.0),
        ("blocks.0.attn.to_q.0", 1.0),
        ("single_blocks.0.attn.to_k", 1.0),
        ("transformer.blocks.0.attn.to_k", 3.0),
        ("blocks.2.ff", 4.0),
        ("blocks.3.ff", 1.0),
        ("blocks.0.to_v", 5.0),
        ("top", 7.0),
    ] {
        assert_eq!(alpha(json, target, 4), Some(expected), "{target}");
    }
}

#[test]
fn metadata_keys_start_with_the_component() {
    let json = r#"{"transformer.r": 4, "transformer.lora_alpha": 2, "transformer.use_rslora": false,
        "transformer.alpha_pattern": {"to_q": 8}, "text_encoder.lora_alpha": 77}"#;
    let path = Path::new("a.safetensors");
    let metadata = HashMap::from([("lora_adapter_metadata".into(), json.into())]);
    let config = AdapterConfig::from_metadata(path, &metadata)
        .expect("JSON")
        .expect("a configuration");
    assert_eq!(config.layer("a.to_k").effective_alpha(4), Some(2.0));
    assert_eq!(config.layer("a.to_q").effective_alpha(4), Some(8.0));
    let other = BTreeMap::from([("ss_network_alpha".into(), "4".into())]);
    assert!(
        AdapterConfig::from_metadata(path, &other)
            .expect("nothing to read")
            .is_none()
    );
}

/// Factors `[6, rank]` and `[rank, 5]` of one layer under the configuration `json`.
fn set(json: &str, path: &str, rank: usize) -> PatchSet {
    let tensors = [
        (
            format!("base_model.model.{path}.lora_B.weight"),
            wave(&[6, rank], 1),
        ),
        (
            format!("base_model.model.{path}.lora_A.weight"),
            wave(&[rank, 5], 2),
        ),
    ];
    let config = read(json).expect("a configuration");
    PatchSet::from_tensors("file", tensors, Some(&config), &device()).expect("an adapter")
}

/// ΔW over the product of the factors.
fn scale(json: &str, path: &str, rank: usize) -> f32 {
    let set = set(json, path, rank);
    let found = delta(set.entries[0].patch.as_ref(), [6, 5]);
    let product = matrix(wave(&[6, rank], 1)).matmul(matrix(wave(&[rank, 5], 2)));
    (found.abs().sum() / product.abs().sum()).into_scalar()
}

#[test]
fn adapters_of_a_changed_base_are_refused() {
    for init in [
        "pissa",
        "pissa_niter_16",
        "olora",
        "corda",
        "loftq",
        "lora_ga",
    ] {
        let json = format!(r#"{{"init_lora_weights": "{init}", "r": 4, "lora_alpha": 4}}"#);
        let set = set(&json, "a.to_q", 4);
        assert!(set.entries.is_empty());
        let expected = format!(
            "layer `a.to_q`: the configuration has init_lora_weights = \"{init}\", which changed the base in \
             training, and the factors of rank 4 fit that base; save the adapter with \
             `path_initial_model_for_weight_conversion` to convert it, which doubles its rank"
        );
        assert_eq!(set.refused[0].error.to_string(), expected);
    }
    for init in ["true", "\"gaussian\"", "\"eva\"", "null"] {
        let json = format!(r#"{{"init_lora_weights": {init}, "r": 4}}"#);
        assert!(set(&json, "a.to_q", 4).refused.is_empty(), "{init}");
    }
}

/// `[A; A₀]` and `[B, −B₀]` have twice the rank, and the scale of the trained half.
#[test]
fn d22_a_converted_adapter_is_told_by_its_doubled_rank() {
    let json =
        r#"{"init_lora_weights": "pissa", "r": 4, "lora_alpha": 2, "rank_pattern": {"to_k": 1}}"#;
    assert!((scale(json, "a.to_q", 8) - 0.5).abs() < 1e-5);
    assert!((scale(json, "a.to_k", 2) - 2.0).abs() < 1e-5);
    assert_eq!(set(json, "a.to_k", 8).refused.len(), 1);
    let rooted = r#"{"init_lora_weights": "olora", "r": 4, "lora_alpha": 2, "use_rslora": true}"#;
    assert!((scale(rooted, "a.to_q", 8) - 1.0).abs() < 1e-5);
}

#[test]
fn a22_patterns_without_a_layer_are_noted() {
    let json = r#"{"lora_alpha": 4, "rank_pattern": {"layers.0.q": 2, "layers.9.q": 3}, "alpha_pattern": {"k": 1}}"#;
    let config = read(json).expect("a configuration");
    assert_eq!(config.layer("base.layers.0.q").rank, Some(2));
    assert_eq!(config.layer("layers.0.q").rank, Some(2));
    assert_eq!(config.layer("xlayers.0.q").rank, None);
    let expected = |field: &str, key: &str| {
        format!("`{key}` in {field} of the adapter configuration matches no layer of the file")
    };
    assert_eq!(
        set(json, "base.layers.0.q", 2).notes,
        [
            expected("alpha_pattern", "k"),
            expected("rank_pattern", "layers.9.q")
        ]
    );
    assert_eq!(set(json, "xlayers.0.q", 2).notes.len(), 3);
    assert!(
        set(r#"{"lora_alpha": 4}"#, "layers.0.q", 2)
            .notes
            .is_empty()
    );
}

/// Each component of a diffusers file has a configuration of its own.
#[test]
fn components_have_their_own_fields() {
    let json = r#"{"unet.r": 4, "unet.lora_alpha": 2, "unet.fan_in_fan_out": true, "unet.peft_type": "LORA",
        "text_encoder.r": 8, "text_encoder.lora_alpha": 8, "text_encoder.use_dora": true,
        "text_encoder.alpha_pattern": {"layers.0.q": 1}}"#;
    let config = read(json).expect("a configuration");
    assert_eq!(config.peft_type(), Some("LORA"));
    assert!(config.is_base_transposed());
    let unet = config.layer("down_blocks.0.to_q");
    assert_eq!(
        (unet.rank, unet.alpha, unet.use_dora),
        (Some(4), Some(2.0), false)
    );
    let encoder = config.layer("text_encoder.layers.1.q");
    assert_eq!(
        (encoder.rank, encoder.alpha, encoder.use_dora),
        (Some(8), Some(8.0), true)
    );
    assert_eq!(config.layer("text_encoder.layers.0.q").alpha, Some(1.0));
    let notes = config.notes(&["down_blocks.0.to_q"]);
    assert_eq!(
        notes[1..],
        [
            "`layers.0.q` in text_encoder.alpha_pattern of the adapter configuration matches no layer of the file"
        ]
    );
}

#[test]
fn feedforward_modules_are_ends_of_names_or_one_pattern() {
    let is_feedforward = |field: &str, path: &str| {
        let config = read(&format!(r#"{{"feedforward_modules": {field}}}"#));
        config.expect("a configuration").layer(path).is_feedforward
    };
    assert_eq!(is_feedforward(r#"["fc2", "w0"]"#, "a.fc2"), Some(true));
    assert_eq!(is_feedforward(r#"["fc2", "w0"]"#, "a.fc1"), Some(false));
    assert_eq!(is_feedforward(r#"["fc2"]"#, "a.xfc2"), Some(true));
    assert_eq!(is_feedforward(r#"".*fc[12]""#, "a.fc2"), Some(true));
    assert_eq!(is_feedforward(r#""fc[12]""#, "a.fc2"), Some(false));
    assert_eq!(is_feedforward("null", "a.fc2"), None);
    let broken = r#"{"feedforward_modules": "fc("}"#;
    assert_eq!(
        message(read(broken)),
        "the adapter configuration in `a/config.json`: `fc(` in `feedforward_modules` is not a regular expression \
         that can be used; correct the pattern"
    );
}

/// A module that was trained whole stands beside the adapter under its own name.
#[test]
fn modules_saved_whole_are_refused_by_name() {
    let json = r#"{"lora_alpha": 4, "modules_to_save": ["head"]}"#;
    let config = read(json).expect("a configuration");
    let tensors = [
        ("base_model.model.a.lora_B.weight", wave(&[6, 4], 1)),
        ("base_model.model.a.lora_A.weight", wave(&[4, 5], 2)),
        ("base_model.model.head.weight", wave(&[6, 5], 3)),
        ("base_model.model.head.bias", wave(&[6], 4)),
        ("base_model.model.tail.bias", wave(&[6], 4)),
    ];
    let tensors = tensors.map(|(key, data)| (String::from(key), data));
    let set = PatchSet::from_tensors("file", tensors, Some(&config), &device());
    let set = set.expect("an adapter");
    assert_eq!(
        (set.entries.len(), set.refused.len(), set.num_keys()),
        (1, 1, 5)
    );
    assert_eq!(set.unread, ["base_model.model.tail.bias"]);
    assert_eq!(set.refused[0].keys.len(), 2);
    assert_eq!(
        set.refused[0].error.to_string(),
        "layer `base_model.model.head`: the adapter's `modules_to_save` replaces the whole module, which no patch \
         can; merge the adapter into its model with PEFT where the module matters"
    );
}

#[test]
fn what_no_residual_expresses_is_refused() {
    let merge = "; merge the adapter into its model with PEFT";
    let cases = [
        (
            "layer_replication",
            "[[0,4],[2,6]]",
            format!("it changes the model's depth{merge}"),
        ),
        (
            "trainable_token_indices",
            "[1]",
            format!("it replaces embeddings{merge}"),
        ),
        (
            "alora_invocation_tokens",
            "[5]",
            "it acts on some tokens only; train an ordinary LoRA".into(),
        ),
        (
            "target_parameters",
            "[\"experts\"]",
            format!("it is for parameters that are no layer's weight{merge}"),
        ),
        (
            "num_cayley_neumann_terms",
            "65",
            "at most 64 are computed; set `use_cayley_neumann` to false for the exact transform"
                .into(),
        ),
        (
            "num_cayley_neumann_terms",
            "0",
            "expected at least 1, the identity; write the number that the adapter was trained with"
                .into(),
        ),
        (
            "eps",
            "-0.5",
            "expected a limit of 0 or more; write the one that the adapter was trained with".into(),
        ),
    ];
    for (field, value, why) in cases {
        let result = read(&format!(r#"{{"{field}": {value}}}"#));
        let expected =
            format!("the adapter configuration in `a/config.json` has {field} = {value}: {why}");
        assert_eq!(message(result), expected);
    }
    assert!(read(r#"{"target_parameters": [], "layer_replication": null}"#).is_ok());
}

#[test]
fn what_cannot_be_read_is_an_error() {
    for json in [
        "",
        "[]",
        "{",
        r#"{"lora_alpha": "four"}"#,
        r#"{"alpha_pattern": 3}"#,
    ] {
        let error = read(json).expect_err("it is no configuration");
        let expected = "the adapter configuration in `a/config.json` is not the JSON object that PEFT writes; \
                        save or download it again";
        assert_eq!(error.to_string(), expected, "{json}");
        assert!(error.source().is_some());
    }
    let not_text = AdapterConfig::from_json(Path::new("c"), b"{\"peft_type\": \"\xFF\"}");
    assert!(matches!(not_text, Err(PatchError::ConfigJson { .. })));
    for pattern in ["to_(q", "(?:a{100}){1000}"] {
        let error = read(&format!(r#"{{"alpha_pattern": {{"{pattern}": 1}}}}"#));
        let error = error.expect_err("it is no pattern");
        let expected = format!(
            "the adapter configuration in `a/config.json`: `{pattern}` in `alpha_pattern` is not a regular \
             expression that can be used; correct the pattern"
        );
        assert_eq!(error.to_string(), expected);
        assert!(error.source().is_some());
    }
}

#[test]
fn what_is_too_much_is_refused() {
    let patterns: Vec<_> = (0..4097).map(|i| format!("\"to_{i}\": 1")).collect();
    let json = |patterns: &[String]| format!(r#"{{"alpha_pattern": {{{}}}}}"#, patterns.join(","));
    assert!(read(&json(&patterns[1..])).is_ok());
    let expected = "the adapter configuration in `a/config.json` has alpha_pattern = 4097 patterns: at most 4096 \
                    are read; write one pattern for several layers";
    assert_eq!(message(read(&json(&patterns))), expected);
    let longest = format!("{{{}}}", " ".repeat(AdapterConfig::MAX_BYTES - 2));
    assert!(read(&longest).is_ok());
    let expected = "the adapter configuration in `a/config.json` has more than 1048576 bytes; is it another file \
                    under this name?";
    assert_eq!(message(read(&format!("{longest} "))), expected);
}

/// `r` and `rank_pattern` tell other ranks than the factors have: the factors' rank counts.
#[test]
fn the_factors_have_the_rank_that_counts() {
    let json = r#"{"r": 64, "rank_pattern": {"to_q": 32}, "lora_alpha": 8, "use_rslora": true}"#;
    assert_eq!(alpha(json, "a.to_q", 4), Some(8.0 * 2.0));
}
