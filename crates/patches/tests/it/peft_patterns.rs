//! The layers that a configuration's patterns match, plain names and regular expressions alike.

use std::path::Path;

use overglaze_patches::{AdapterConfig, PatchError, PatchSet};
use serde_json::{Map, Value, json};

use crate::fixtures::{device, message, wave};

fn read(json: &Value) -> AdapterConfig {
    let config = AdapterConfig::from_json(Path::new("c.json"), json.to_string());
    config.expect("a configuration")
}

/// A plain name finds the layers that PEFT's `(.*\.)?name$` finds: so does the same name as a regular expression.
#[test]
fn plain_names_match_as_regular_expressions_do() {
    let paths = [
        "a.to_q",
        "to_q",
        "a.xto_q",
        "a.to_q.0",
        "b.a.to_q",
        "a_to_q",
        "x.a_to_q",
        "xa.to_q",
        "unet.a.to_q",
        "a..to_q",
        "",
        ".",
        "a.b-c",
        "transformer",
    ];
    let keys = [
        "to_q",
        "a.to_q",
        "a_to_q",
        ".to_q",
        "to_q.0",
        "transformer.a.to_q",
        "transformer",
        "b-c",
        "a.b-c",
        "unet",
        ".",
        "a.",
        "..",
    ];
    for key in keys {
        let plain = read(&json!({"alpha_pattern": {key: 2}, "rank_pattern": {key: 3}}));
        let group = format!("(?:{key})");
        let regex = read(&json!({"alpha_pattern": {&group: 2}, "rank_pattern": {&group: 3}}));
        for path in paths {
            assert_eq!(plain.layer(path), regex.layer(path), "`{key}`, `{path}`");
            let num_notes = [&plain, &regex].map(|config| config.notes(&[path]).len());
            assert_eq!(num_notes[0], num_notes[1], "`{key}`, `{path}`");
        }
    }
}

/// The first entry counts, whichever of both it is.
#[test]
fn the_first_of_names_and_expressions_counts() {
    let alpha = |text: &str| {
        let config = AdapterConfig::from_json(Path::new("c.json"), text);
        config.expect("a configuration").layer("a.to_q").alpha
    };
    assert_eq!(
        alpha(r#"{"alpha_pattern": {"to_[qk]": 1, "to_q": 2}}"#),
        Some(1.0)
    );
    assert_eq!(
        alpha(r#"{"alpha_pattern": {"to_q": 2, "to_[qk]": 1}}"#),
        Some(2.0)
    );
    assert_eq!(
        alpha(r#"{"alpha_pattern": {"to_[xk]": 1, "to_q": 2, "a.to_q": 3}}"#),
        Some(2.0)
    );
}

#[test]
fn thousands_of_names_are_found() {
    let name = |index: usize| format!("blocks.{}.to_{}", index / 8, index % 8);
    let named = |value: fn(usize) -> usize| -> Map<String, Value> {
        let entries = (0..4000).map(|index| (name(index), value(index).into()));
        entries.collect()
    };
    let config = read(&json!({
        "alpha_pattern": named(|index| index + 1), "rank_pattern": named(|index| index + 2),
    }));
    let layers: Vec<_> = (0..500).map(|layer| name(layer * 8)).collect();
    for (layer, path) in layers.iter().enumerate() {
        let found = config.layer(&format!("model.{path}"));
        let index = layer * 8;
        assert_eq!(found.alpha, Some((index + 1) as f64), "{path}");
        assert_eq!(found.rank, Some(index + 2), "{path}");
    }
    let targets: Vec<_> = layers.iter().map(String::as_str).collect();
    assert!(config.check_work(&targets).is_ok());
    assert_eq!(config.notes(&targets).len(), 2 * 3500);
}

#[test]
fn many_names_of_modules_are_found() {
    let names: Vec<_> = (0..4000).map(|index| format!("m{index}.fc2")).collect();
    let config = read(&json!({"feedforward_modules": names, "modules_to_save": names}));
    assert_eq!(config.layer("a.m77.fc2").is_feedforward, Some(true));
    assert_eq!(config.layer("a.m77.fc1").is_feedforward, Some(false));
    let tensors = [
        ("base_model.model.a.lora_B.weight", wave(&[6, 4], 1)),
        ("base_model.model.a.lora_A.weight", wave(&[4, 5], 2)),
        ("base_model.model.m1.fc2.weight", wave(&[6, 5], 3)),
        ("base_model.model.m2.fc2.weight", wave(&[6, 5], 3)),
        ("base_model.model.m1.fc2.bias", wave(&[6], 4)),
    ];
    let tensors = tensors.map(|(key, data)| (String::from(key), data));
    let set = PatchSet::from_tensors("file", tensors, Some(&config), &device());
    let refused = set.expect("an adapter").refused;
    let refused: Vec<_> = refused
        .iter()
        .map(|group| (group.target.as_str(), group.keys.len()))
        .collect();
    assert_eq!(
        refused,
        [
            ("base_model.model.m1.fc2", 2),
            ("base_model.model.m2.fc2", 1)
        ]
    );
}

#[test]
fn expressions_that_take_too_long_are_refused() {
    let patterns: Map<String, Value> = (0..2000)
        .map(|i| (format!("to_[q{i}]"), 1.into()))
        .collect();
    let config = read(&json!({"rank_pattern": patterns}));
    let paths: Vec<_> = (0..100)
        .map(|index| format!("layers.{index:03}.{}", "a".repeat(49)))
        .collect();
    let targets: Vec<_> = paths.iter().map(String::as_str).collect();
    assert!(config.check_work(&targets[..10]).is_ok());
    let error: Result<(), PatchError> = config.check_work(&targets);
    assert_eq!(
        message(error),
        "the adapter configuration in `c.json` has rank_pattern = 2000 regular expressions of up to 8192000 bytes for \
         layers whose names have 6000 bytes: their product may be 34359738368 at most; write plain names of layers, or \
         one pattern for several"
    );
}
