//! `check`: adapters against a model, key by key.

use std::{fs, path::Path};

use crate::overglaze::{demo_file, overglaze, text, write_tensors};

#[test]
fn the_demos_adapters_fit_the_demo() {
    for file in [
        "loras/outline-epoch-1.safetensors",
        "more/negative.safetensors",
    ] {
        let path = demo_file(file);
        let run = overglaze(
            Path::new("."),
            &["check", text(&path), "--strict", "--json"],
        );
        assert_eq!(run.code, Some(0), "{file}: {}", run.stdout);
        let document = run.json();
        assert_eq!(document["version"], 1);
        assert_eq!(document["adapters"][0]["keys_unmatched"], 0);
        assert_eq!(document["adapters"][0]["targets"][0]["outcome"], "applied");
    }
}

#[test]
fn a_folder_and_a_model_folder_are_taken() {
    let (loras, model) = (demo_file("loras"), demo_file("transformer"));
    let run = overglaze(
        Path::new("."),
        &["check", text(&loras), "--model", text(&model)],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stdout.lines().count(), 5, "{}", run.stdout);
    assert!(
        run.stdout
            .starts_with("outline-epoch-1.safetensors: 78 keys applied, 0 left over\n")
    );
}

#[test]
fn leftovers_are_named_and_fail_only_when_strict() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("keys.json"),
        r#"{"net.a.weight": [8, 4], "net.b.weight": [6, 2, 2]}"#,
    )
    .unwrap();
    let tensor = |rows: usize, columns: usize| vec![1.0; rows * columns];
    write_tensors(
        &folder.path().join("a.safetensors"),
        &[
            ("transformer.net.a.lora_A.weight", &[2, 4], tensor(2, 4)),
            ("transformer.net.a.lora_B.weight", &[8, 2], tensor(8, 2)),
            ("transformer.net.b.lora_A.weight", &[2, 5], tensor(2, 5)),
            ("transformer.net.b.lora_B.weight", &[6, 2], tensor(6, 2)),
            ("transformer.net.aa.lora_A.weight", &[2, 4], tensor(2, 4)),
            ("transformer.net.aa.lora_B.weight", &[8, 2], tensor(8, 2)),
            ("stray", &[1], vec![0.0]),
        ],
    );
    let arguments = ["check", "a.safetensors", "--model-keys", "keys.json"];
    let run = overglaze(folder.path(), &arguments);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(lines[0], "a.safetensors: 2 keys applied, 5 left over");
    assert_eq!(
        lines[1],
        "  unmatched      net.aa: the model has no layer of this name; nearest: net.a, net.b"
    );
    assert_eq!(
        lines[2],
        "  shape mismatch net.b: the lora patch is for a weight of shape [6, 5], the layer has [6, 4]"
    );
    assert_eq!(
        lines[3],
        "  unread         stray: no dialect understands this key"
    );
    let strict = overglaze(
        folder.path(),
        &[&arguments[..], &["--strict", "--keys"]].concat(),
    );
    assert_eq!(strict.code, Some(3));
    assert!(
        strict.stdout.contains("  applied        net.a\n"),
        "{}",
        strict.stdout
    );
    assert!(
        strict.stdout.contains("transformer.net.aa.lora_B.weight"),
        "{}",
        strict.stdout
    );
}

#[test]
fn an_adapter_for_another_model_is_told_key_by_key() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("keys.json"),
        r#"{"unet.conv.weight": [8, 4, 3, 3]}"#,
    )
    .unwrap();
    let adapter = demo_file("more/negative.safetensors");
    let arguments = [
        "check",
        text(&adapter),
        "--model-keys",
        "keys.json",
        "--json",
    ];
    let run = overglaze(folder.path(), &arguments);
    assert_eq!(run.code, Some(3));
    let adapter = &run.json()["adapters"][0];
    assert_eq!(
        (&adapter["keys_applied"], &adapter["keys_unmatched"]),
        (&0.into(), &66.into())
    );
    assert_eq!(adapter["targets"][0]["outcome"], "unmatched");
}

#[test]
fn flux_keys_bring_their_aliases_without_a_config() {
    let folder = tempfile::tempdir().unwrap();
    let model = demo_file("transformer/diffusion_pytorch_model.safetensors");
    let inspected = overglaze(folder.path(), &["inspect", text(&model), "--json"]).json();
    let tensors = inspected["files"][0]["tensors"].as_object().unwrap();
    let keys: serde_json::Map<_, _> = tensors
        .iter()
        .map(|(name, stored)| (name.clone(), stored["shape"].clone()))
        .collect();
    let keys = serde_json::Value::Object(keys).to_string();
    fs::write(folder.path().join("keys.json"), keys).unwrap();
    let adapter = demo_file("more/negative.safetensors");
    let arguments = [
        "check",
        text(&adapter),
        "--model-keys",
        "keys.json",
        "--strict",
    ];
    let run = overglaze(folder.path(), &arguments);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
}
