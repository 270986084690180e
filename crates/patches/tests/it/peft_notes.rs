//! What a configuration says of layers by their path in the wrapped model, and what it announces in vain.

use std::path::Path;

use burn::tensor::TensorData;
use overglaze_patches::{AdapterConfig, PatchSet};

use crate::fixtures::{delta, device, matrix, scalar, wave};

fn read(tensors: Vec<(String, TensorData)>, json: Option<&str>) -> PatchSet {
    let config = json.map(|json| {
        let config = AdapterConfig::from_json(Path::new("c.json"), json);
        config.expect("a configuration")
    });
    PatchSet::from_tensors("file", tensors, config.as_ref(), &device()).expect("an adapter")
}

/// Factors `[6, 4]` and `[4, 5]` of the layer `path`.
fn factors(path: &str) -> Vec<(String, TensorData)> {
    vec![
        (format!("{path}.lora_B.weight"), wave(&[6, 4], 1)),
        (format!("{path}.lora_A.weight"), wave(&[4, 5], 2)),
    ]
}

/// ΔW over the product of the factors, of the only layer.
fn scale(path: &str, json: &str) -> f32 {
    let set = read(factors(path), Some(json));
    assert!(set.notes.is_empty(), "{:?}", set.notes);
    let found = delta(set.entries[0].patch.as_ref(), [6, 5]);
    let product = matrix(wave(&[6, 4], 1)).matmul(matrix(wave(&[4, 5], 2)));
    (found.abs().sum() / product.abs().sum()).into_scalar()
}

#[test]
fn patterns_match_the_path_in_the_whole_pipeline() {
    for (path, key) in [
        (
            "base_model.model.transformer.x_embedder",
            "transformer.x_embedder",
        ),
        (
            "transformer.base_model.model.x_embedder",
            "transformer.x_embedder",
        ),
        ("base_model.model.unet.conv_in", "unet.conv_in"),
        (
            "base_model.model.diffusion_model.a.b",
            "diffusion_model.a.b",
        ),
        ("base_model.model.transformer.x_embedder", "x_embedder"),
        ("base_model.model.x_embedder", "x_embedder"),
    ] {
        let json = format!(r#"{{"lora_alpha": 4, "alpha_pattern": {{"{key}": 8}}}}"#);
        assert!((scale(path, &json) - 2.0).abs() < 1e-5, "{path}, {key}");
    }
}

/// The first pattern that matches any spelling of the path counts.
#[test]
fn the_first_pattern_in_the_file_counts() {
    let config = |text: &str| AdapterConfig::from_json(Path::new("c.json"), text);
    let alpha = |text: &str| config(text).expect("a configuration").layer("a.to_q").alpha;
    let first = r#"{"alpha_pattern": {"transformer.a.to_q": 2, "to_q": 3}}"#;
    assert_eq!(alpha(first), Some(2.0));
    let second = r#"{"alpha_pattern": {"to_q": 3, "transformer.a.to_q": 2}}"#;
    assert_eq!(alpha(second), Some(3.0));
    let other = r#"{"alpha_pattern": {"other.a.to_q": 3}, "rank_pattern": {"unet.a.to_q": 7}}"#;
    assert_eq!(alpha(other), None);
    let layer = config(other).expect("a configuration").layer("a.to_q");
    assert_eq!(layer.rank, Some(7));
}

#[test]
fn feedforward_modules_name_the_path_in_the_whole_pipeline() {
    let is_feedforward = |field: &str| {
        let text = format!(r#"{{"feedforward_modules": {field}}}"#);
        let config = AdapterConfig::from_json(Path::new("c.json"), text);
        config
            .expect("a configuration")
            .layer("a.fc2")
            .is_feedforward
    };
    assert_eq!(is_feedforward(r#"["transformer.a.fc2"]"#), Some(true));
    assert_eq!(is_feedforward(r#""transformer\\.a\\.fc[12]""#), Some(true));
    assert_eq!(is_feedforward(r#""other\\.a\\.fc[12]""#), Some(false));
}

#[test]
fn announced_tensors_that_are_missing_are_noted() {
    let [a, b, c] = ["a", "b", "c"].map(|name| factors(&format!("base_model.model.{name}")));
    let one =
        |key: &str, shape: &[usize]| vec![(format!("base_model.model.{key}"), wave(shape, 3))];
    let dora = r#"{"lora_alpha": 4, "use_dora": true}"#;
    let magnitude = |name: &str| one(&format!("{name}.lora_magnitude_vector"), &[6]);
    let tensors = [a.clone(), b.clone(), c, magnitude("c")].concat();
    assert_eq!(
        read(tensors, Some(dora)).notes,
        [
            "the configuration says use_dora, but 2 layers have no magnitude: they are read as plain LoRA"
        ]
    );
    let whole = [a.clone(), magnitude("a")].concat();
    assert!(read(whole, Some(dora)).notes.is_empty());
    let bias = r#"{"lora_alpha": 4, "lora_bias": true}"#;
    let tensors = [a, b, one("b.lora_B.bias", &[6])].concat();
    assert_eq!(
        read(tensors, Some(bias)).notes,
        ["the configuration says lora_bias, but 1 layer has no bias: it is read without one"]
    );
}

#[test]
fn an_alpha_of_zero_is_noted() {
    let with = |key: &str, value: f32| {
        let alpha = (format!("base_model.model.a.{key}"), scalar(value));
        [factors("base_model.model.a"), vec![alpha]].concat()
    };
    let expected = ["1 layer has an alpha of 0: the factors add nothing"];
    assert_eq!(read(with("alpha", 0.0), None).notes, expected);
    let json = r#"{"lora_alpha": 0}"#;
    assert_eq!(
        read(factors("base_model.model.a"), Some(json)).notes,
        expected
    );
    assert!(read(with("alpha", 1.0), Some(json)).notes.is_empty());
    // To a rotation, 0 is no limit.
    let rotation = vec![
        ("a.oft_blocks".to_owned(), wave(&[2, 4, 4], 1)),
        ("a.alpha".to_owned(), scalar(0.0)),
    ];
    assert!(read(rotation, None).notes.is_empty());
}

/// Without an alpha anywhere, the scale is a guess.
#[test]
fn factors_without_any_alpha_are_noted() {
    let tensors = [factors("base_model.model.a"), factors("base_model.model.b")].concat();
    let guess = "the scale alpha / rank is taken as 1";
    assert_eq!(
        read(tensors.clone(), None).notes,
        [format!(
            "2 layers have no alpha and there is no adapter_config.json: {guess}"
        )]
    );
    for json in [r#"{"r": 4}"#, "{}", r#"{"lora_alpha": null}"#] {
        assert_eq!(
            read(tensors.clone(), Some(json)).notes,
            [format!(
                "the configuration has no lora_alpha and 2 layers have no alpha: {guess}"
            )]
        );
    }
    // Other trainers' files have alphas of their own, or mean 1.
    assert!(read(factors("transformer.a"), None).notes.is_empty());
    let alphas = ["a", "b"].map(|name| (format!("base_model.model.{name}.alpha"), scalar(2.0)));
    let whole = [tensors, alphas.to_vec()].concat();
    assert!(read(whole, None).notes.is_empty());
}

#[test]
fn a_type_that_the_keys_contradict_is_noted() {
    let of = |peft_type: &str| {
        let json = format!(r#"{{"lora_alpha": 4, "peft_type": "{peft_type}"}}"#);
        let tensors = [factors("base_model.model.a"), factors("base_model.model.b")].concat();
        read(tensors, Some(&json)).notes
    };
    assert!(of("LORA").is_empty());
    for peft_type in ["LOHA", "NEVER_HEARD_OF"] {
        let expected = format!(
            "the configuration says peft_type {peft_type}, but the keys are those of lora: they are read as lora"
        );
        assert_eq!(of(peft_type), [expected]);
    }
}

#[test]
fn a_transposed_base_is_noted() {
    let json = r#"{"lora_alpha": 4, "fan_in_fan_out": true}"#;
    assert_eq!(
        read(factors("base_model.model.a"), Some(json)).notes,
        [
            "the adapter configuration says fan_in_fan_out: the adapter was trained over weights stored as \
          [d_input, d_output], and `merge` refuses it"
        ]
    );
}
