//! PEFT configurations and the scales they give.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error as _,
    path::Path,
};

use overglaze_patches::{AdapterConfig, PatchError};

use crate::fixtures::message;

fn read(json: &str) -> Result<AdapterConfig, PatchError> {
    AdapterConfig::from_json(Path::new("a/config.json"), json)
}

fn alpha(json: &str, target: &str, rank: usize) -> Option<f32> {
    read(json)
        .expect("a configuration")
        .effective_alpha(target, rank)
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
    assert_eq!(config.effective_alpha("a.to_k", 4), Some(2.0));
    assert_eq!(config.effective_alpha("a.to_q", 4), Some(8.0));
    let other = BTreeMap::from([("ss_network_alpha".into(), "4".into())]);
    assert!(
        AdapterConfig::from_metadata(path, &other)
            .expect("nothing to read")
            .is_none()
    );
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
        let result = read(&format!(r#"{{"init_lora_weights": "{init}"}}"#));
        let expected = format!(
            "the adapter configuration in `a/config.json` has init_lora_weights = \"{init}\": its factors fit a base that \
             was changed in training; save it with `path_initial_model_for_weight_conversion` to convert it"
        );
        assert_eq!(message(result), expected);
    }
    for init in ["true", "\"gaussian\"", "\"eva\"", "null"] {
        let json = format!(r#"{{"init_lora_weights": {init}}}"#);
        assert!(read(&json).is_ok(), "{init}");
    }
}

#[test]
fn what_no_residual_expresses_is_refused() {
    let cases = [
        (
            "layer_replication",
            "[[0,4],[2,6]]",
            "it changes the model's depth",
        ),
        ("trainable_token_indices", "[1]", "it replaces embeddings"),
        (
            "alora_invocation_tokens",
            "[5]",
            "it acts on some tokens only",
        ),
    ];
    for (field, value, why) in cases {
        let result = read(&format!(r#"{{"{field}": {value}}}"#));
        let expected =
            format!("the adapter configuration in `a/config.json` has {field} = {value}: {why}");
        assert_eq!(message(result), expected);
    }
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
fn ranks_of_the_configuration_are_not_read() {
    let json = r#"{"r": 64, "rank_pattern": {"to_q": 32}, "lora_alpha": 8, "use_rslora": true}"#;
    assert_eq!(alpha(json, "a.to_q", 4), Some(8.0 * 2.0));
}
