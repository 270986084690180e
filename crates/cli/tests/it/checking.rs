//! `check`: adapters against a model, key by key.

use std::{fs, path::Path};

use crate::overglaze::{demo_file, overglaze, overglaze_line, text, write_tensors};

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
        "  shape mismatch net.b: the lora patch is for a weight of shape [6, 5], the layer has [6, 2, 2]"
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
        strict.stdout.contains("  applied        net.a (lora)\n"),
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

#[test]
fn an_unreadable_adapter_does_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let loras = folder.path().join("loras");
    fs::create_dir(&loras).unwrap();
    fs::write(
        loras.join("b-page.safetensors"),
        "<!DOCTYPE html><html></html>",
    )
    .unwrap();
    for name in ["a.safetensors", "c.safetensors"] {
        fs::copy(demo_file("more/negative.safetensors"), loras.join(name)).unwrap();
    }
    let run = overglaze(folder.path(), &["check", "loras", "--json"]);
    assert_eq!(run.code, Some(1));
    let why = "`loras/b-page.safetensors` is an HTML page, not a safetensors file; a server's answer was saved in \
               its place, so fetch the file itself";
    assert_eq!(
        run.stderr,
        format!(
            "error: 1 of 3 adapters cannot be checked; the first, `b-page.safetensors`: {why}\n"
        )
    );
    let document = run.json();
    let adapters = document["adapters"].as_array().unwrap();
    let applied: Vec<_> = adapters
        .iter()
        .map(|entry| entry["keys_applied"].as_u64())
        .collect();
    assert_eq!(applied, [Some(66), None, Some(66)]);
    assert_eq!(
        adapters[1],
        serde_json::json!({"name": "b-page.safetensors", "error": why})
    );
    let text = overglaze(folder.path(), &["check", "loras"]).stdout;
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(
        text.contains(&format!("b-page.safetensors: not checked: {why}\n")),
        "{text}"
    );
}

/// Of a folder, what is not checked is told with the reason; such a file that is named alone is an error.
#[test]
fn what_a_folder_holds_besides_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let loras = folder.path().join("loras");
    fs::create_dir_all(loras.join("pickled")).unwrap();
    fs::create_dir_all(loras.join("half")).unwrap();
    let negative = demo_file("more/negative.safetensors");
    fs::copy(&negative, loras.join("a.safetensors")).unwrap();
    for name in [
        "old.ckpt",
        "pickled/adapter_config.json",
        "pickled/adapter_model.bin",
    ] {
        fs::write(loras.join(name), "{}").unwrap();
    }
    fs::copy(&negative, loras.join("half/adapter_model.safetensors")).unwrap();
    let text = overglaze(folder.path(), &["check", "loras"]).stdout;
    let pickle = "a pickle, which is not read: convert it to safetensors";
    let expected = format!(
        "a.safetensors: 66 keys applied, 0 left over\n\
         skipped: half: a folder without adapter_config.json\n\
         skipped: old.ckpt: {pickle}\n\
         skipped: pickled: its adapter_model.bin is {pickle}\n"
    );
    assert_eq!(text, expected);
    let document = overglaze(folder.path(), &["check", "loras", "--json"]).json();
    assert_eq!(document["skipped"].as_array().map(Vec::len), Some(3));
    for line in [
        "check loras/old.ckpt",
        "sweep --loras loras/old.ckpt",
        "sample --lora loras/old.ckpt --prompt boot",
        "merge --lora loras/old.ckpt -o merged.safetensors",
    ] {
        let run = overglaze_line(folder.path(), line);
        assert_eq!(run.code, Some(1), "{line}");
        assert_eq!(
            run.stderr,
            format!("error: `loras/old.ckpt` is {pickle}\n"),
            "{line}"
        );
    }
}

#[test]
fn a_list_of_keys_is_checked_itself() {
    let folder = tempfile::tempdir().unwrap();
    for (text, why) in [
        (
            r#"{"a.weight": [1, -1]}"#,
            "`a.weight` is neither a shape like [3072, 64] nor a layer's tensors like {\"weight\": [3072, 64]}",
        ),
        (
            r#"{"a.weight": [1], "a.weight": [2]}"#,
            "the key `a.weight` is there twice",
        ),
        (
            r#"{"a.weight": [1], "a": {"weight": [2]}}"#,
            "the key `a.weight` is there twice",
        ),
        ("[]", "invalid type: sequence, expected an object"),
    ] {
        fs::write(folder.path().join("keys.json"), text).unwrap();
        let run = overglaze_line(folder.path(), "check --keys keys.json");
        let start = "error: `keys.json` is not a JSON object from key to shape, such as ";
        assert!(run.stderr.starts_with(start), "{text}: {}", run.stderr);
        assert!(run.stderr.contains(why), "{text}: {}", run.stderr);
    }
}

/// A list of keys has no tensors to lay, whatever lies beside it.
#[test]
fn a_list_of_keys_is_not_laid() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("keys.json"),
        r#"{"a.lora_A.weight": [4, 8]}"#,
    )
    .unwrap();
    fs::write(folder.path().join("merged.safetensors"), "of yesterday").unwrap();
    for line in [
        "merge --lora keys.json -o merged.safetensors",
        "sample --lora keys.json --prompt boot -o picture.png",
    ] {
        let run = overglaze_line(folder.path(), line);
        let expected = "error: `keys.json` is a list of keys and shapes, which holds no tensors; ";
        assert!(run.stderr.starts_with(expected), "{line}: {}", run.stderr);
    }
}

/// The reasons that `check` gives are told where a LoRA is laid, too.
#[test]
fn a_sample_says_why_keys_are_left_over() {
    let folder = tempfile::tempdir().unwrap();
    let tensors = ["0", "9"].map(|block| {
        let layer = format!("transformer.single_transformer_blocks.{block}.attn.to_q");
        [
            (format!("{layer}.lora_A.weight"), [4, 96]),
            (format!("{layer}.lora_B.weight"), [96, 4]),
        ]
    });
    let tensors = tensors.as_flattened().iter();
    let tensors: Vec<_> = tensors
        .map(|(key, shape)| (key.as_str(), shape.as_slice(), vec![0.01; 384]))
        .collect();
    write_tensors(&folder.path().join("half.safetensors"), &tensors);
    let line = "sample --lora half.safetensors --prompt boot --steps 1";
    let run = overglaze_line(folder.path(), line);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let why = "note: `half.safetensors`: unmatched single_transformer_blocks.9.attn.to_q: the model has no layer of this name";
    assert!(run.stderr.starts_with(why), "{}", run.stderr);
    assert!(run.stdout.contains("2 / 2"), "{}", run.stdout);
}

/// Layers that are refused for the same cause are one line, whatever their names.
#[test]
fn refused_layers_are_grouped_by_cause() {
    let folder = tempfile::tempdir().unwrap();
    let key = |layer: &str, end: &str| format!("transformer.net.{layer}.{end}.weight");
    let (first, second, third) = (key("a", "lora_A"), key("b", "lora_A"), key("c", "lora_A"));
    let up = key("c", "lora_B");
    write_tensors(
        &folder.path().join("half.safetensors"),
        &[
            (&first, &[2, 4], vec![1.0; 8]),
            (&second, &[2, 4], vec![1.0; 8]),
            (&third, &[2, 4], vec![1.0; 8]),
            (&up, &[8, 2], vec![1.0; 16]),
        ],
    );
    fs::write(
        folder.path().join("keys.json"),
        r#"{"net.a.weight": [8, 4], "net.b.weight": [8, 4], "net.c.weight": [8, 4]}"#,
    )
    .unwrap();
    let arguments = ["check", "half.safetensors", "--model-keys", "keys.json"];
    let run = overglaze(folder.path(), &arguments);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(lines[0], "half.safetensors: 2 keys applied, 2 left over");
    assert!(
        lines[1].starts_with("  refused        net.a and 1 more: "),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 2, "{lines:?}");
    let text = overglaze(folder.path(), &["inspect", "half.safetensors"]).stdout;
    assert!(text.contains("\n  refused net.a and 1 more: "), "{text}");
}

/// An adapter may be a list of keys and shapes, named alone or behind `--keys`.
#[test]
fn lists_of_keys_are_checked_without_weights() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("model.json", r#"{"net.a.weight": [8, 4], "flag": []}"#);
    write(
        "lora.json",
        r#"{"transformer.net.a.lora_A.weight": [2, 4], "transformer.net.a": {"lora_B.weight": [8, 2], "alpha": []}}"#,
    );
    for arguments in [
        &["--keys", "lora.json", "--model-keys", "model.json"][..],
        &["lora.json", "--model-keys", "model.json", "--keys"],
    ] {
        let run = overglaze(folder.path(), &[&["check"], arguments].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let mut lines = run.stdout.lines();
        assert_eq!(lines.next(), Some("lora.json: 3 keys applied, 0 left over"));
        assert_eq!(lines.next(), Some("  applied        net.a (lora)"));
    }
    let run = overglaze(
        folder.path(),
        &["check", "--model-keys", "model.json", "--keys"],
    );
    assert_eq!(run.code, Some(2));
    let expected =
        "error: no adapter is named; give files, folders, or a JSON list of keys and shapes\n";
    assert_eq!(run.stderr, expected);
    write("large.json", r#"{"net.a.lora_A.weight": [100000, 100000]}"#);
    let run = overglaze(
        folder.path(),
        &["check", "large.json", "--model-keys", "model.json"],
    );
    assert_eq!(run.code, Some(1));
    let expected =
        "key `net.a.lora_A.weight` has shape [100000, 100000], expected at most 134217728 values";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
}

#[test]
fn a_target_tells_its_kind_and_the_models_layers() {
    let adapter = demo_file("loras/outline-epoch-1.safetensors");
    let run = overglaze(Path::new("."), &["check", text(&adapter), "--json"]);
    let document = run.json();
    let targets = document["adapters"][0]["targets"].as_array().unwrap();
    assert!(!targets.is_empty(), "{}", run.stdout);
    for target in targets {
        assert_eq!(target["kind"], "lora", "{target}");
        assert_eq!(
            target["layers"].as_array().map(Vec::len),
            Some(1),
            "{target}"
        );
    }
}
