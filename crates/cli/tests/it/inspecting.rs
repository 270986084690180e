//! `inspect`: what is in a file.

use std::{fs, path::Path};

use crate::overglaze::{demo_file, overglaze, text, write_tensors};

#[test]
fn a_model_is_told_with_its_geometry() {
    let model = demo_file("transformer");
    let document = overglaze(Path::new("."), &["inspect", text(&model), "--json"]).json();
    assert_eq!(document["version"], 1);
    let file = &document["files"][0];
    assert_eq!(file["model"]["family"], "FLUX.1 transformer");
    assert_eq!(file["model"]["naming"], "diffusers");
    assert_eq!(file["model"]["config"]["num_single_layers"], 3);
    assert_eq!(file["num_values"], 1_165_232);
    assert_eq!(file["tensors"]["x_embedder.weight"]["bits_per_value"], 16.0);
    let text = overglaze(Path::new("."), &["inspect", text(&model)]).stdout;
    let expected = "  FLUX.1 transformer, diffusers naming: 2 double and 3 single blocks, width 96 (3 heads of \
                    32), 16 channels, no guidance embedding";
    assert!(text.lines().any(|line| line == expected), "{text}");
}

#[test]
fn an_adapter_is_told_with_kinds_and_spelling() {
    let path = demo_file("more/negative.safetensors");
    let document = overglaze(Path::new("."), &["inspect", text(&path), "--json"]).json();
    let adapter = &document["files"][0]["adapter"];
    assert_eq!(adapter["kinds"]["lora"], 22);
    assert_eq!(adapter["dialects"].as_object().unwrap().len(), 1);
    let document = overglaze(
        Path::new("."),
        &[
            "inspect",
            text(&demo_file("more/stripes.safetensors")),
            "--json",
        ],
    );
    assert_eq!(
        document.code,
        Some(0),
        "a kind that is not compiled in is no failure"
    );
}

#[test]
fn files_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, tensors: &[(&str, &[usize], Vec<f32>)]| {
        write_tensors(&folder.path().join(name), tensors);
    };
    write(
        "a.safetensors",
        &[
            ("x", &[2], vec![0.0; 2]),
            ("y", &[1], vec![0.0]),
            ("w", &[1], vec![0.0]),
        ],
    );
    write(
        "b.safetensors",
        &[
            ("x", &[3], vec![0.0; 3]),
            ("z", &[1], vec![0.0]),
            ("w", &[1], vec![0.0]),
        ],
    );
    let run = overglaze(
        folder.path(),
        &["inspect", "a.safetensors", "--compare", "b.safetensors"],
    );
    let expected = "\
  neither a known model nor an adapter
  3 tensors, 4 values, 16 bytes: 3 F32 (16 bytes)
  against b.safetensors: 2 names in both, 1 only here, 1 only there, 1 with another shape, 0 with other values
    only here   y
    only there  z
    [2] here, [3] there  x
";
    assert!(run.stdout.contains(expected), "{}", run.stdout);
}

/// NaN and infinity have no distance to anything; they are counted, and the other values compared all the same.
#[test]
fn values_that_are_no_numbers_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    for (name, values) in [
        ("a", [1.0, 2.0, f32::NAN, f32::INFINITY]),
        ("b", [1.0, f32::NAN, f32::NAN, f32::NEG_INFINITY]),
        ("c", [3.0, 2.0, f32::NAN, f32::INFINITY]),
        ("d", [1.0, 2.0, 0.0, 0.0]),
    ] {
        let path = folder.path().join(format!("{name}.safetensors"));
        write_tensors(&path, &[("x", &[4], values.to_vec())]);
    }
    for (here, there, expected) in [
        ("a", "a", None),
        (
            "a",
            "b",
            Some("0.000 % off, at most 0.00e0, and 2 NaN or infinite on one side"),
        ),
        ("a", "c", Some("55.470 % off, at most 2.00e0")),
        (
            "d",
            "a",
            Some("0.000 % off, at most 0.00e0, and 2 NaN or infinite on one side"),
        ),
    ] {
        let files = [here, there].map(|name| format!("{name}.safetensors"));
        let run = overglaze(
            folder.path(),
            &["inspect", &files[0], "--compare", &files[1]],
        );
        let line = run.stdout.lines().find(|line| line.ends_with("  x"));
        let expected = expected.map(|text| format!("    {text}  x"));
        assert_eq!(line.map(str::to_owned), expected, "{}", run.stdout);
    }
}

/// What is wrong with a model is said of it; the tensors are listed all the same.
#[test]
fn a_model_that_contradicts_itself_is_still_told() {
    let folder = tempfile::tempdir().unwrap();
    let markers = [
        "time_text_embed.text_embedder.linear_1.weight",
        "x_embedder.weight",
        "context_embedder.weight",
        "vector_in.in_layer.weight",
        "img_in.weight",
        "txt_in.weight",
    ];
    let shape: &[usize] = &[1, 1];
    let tensors = markers.map(|name| (name, shape, vec![0.5]));
    write_tensors(&folder.path().join("both.safetensors"), &tensors);
    let run = overglaze(folder.path(), &["inspect", "both.safetensors", "--json"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let file = &run.json()["files"][0];
    assert_eq!(file["num_tensors"], 6);
    assert_eq!(file["model"]["naming"], "mixed");
    let unknown = file["model"]["unknown"].as_str().unwrap();
    assert!(unknown.contains("mixes two namings"), "{unknown}");
}

#[test]
fn a_broken_neighbour_is_no_failure_and_another_config_can_be_given() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        fs::copy(demo_file(from), folder.path().join(to)).unwrap();
    };
    copy(
        "transformer/diffusion_pytorch_model.safetensors",
        "model.safetensors",
    );
    copy("transformer/config.json", "right.json");
    fs::write(folder.path().join("config.json"), "{").unwrap();
    let inspect = |more: &[&str]| {
        let arguments = ["inspect", "model.safetensors", "--json"];
        overglaze(folder.path(), &[&arguments, more].concat())
    };
    let run = inspect(&[]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let file = &run.json()["files"][0];
    assert_eq!(
        (&file["num_values"], &file["model"]["naming"]),
        (&1_165_232.into(), &"diffusers".into())
    );
    let unknown = file["model"]["unknown"].as_str().unwrap();
    let expected = "the model's config.json is not JSON of the expected form: EOF while parsing an object at line 1 \
                    column 1";
    assert_eq!(unknown, expected);
    let model = &inspect(&["--config", "right.json"]).json()["files"][0]["model"];
    assert_eq!(
        (&model["config"]["num_layers"], &model["unknown"]),
        (&2.into(), &serde_json::Value::Null)
    );
    assert_eq!(inspect(&["--config", "none.json"]).code, Some(1));
}

#[test]
fn a_list_of_keys_is_sent_to_check() {
    let folder = tempfile::tempdir().unwrap();
    let keys = r#"{"a.weight": [8, 4]}"#;
    fs::write(folder.path().join("keys.json"), keys).unwrap();
    let run = overglaze(folder.path(), &["inspect", "keys.json"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert_eq!(
        run.stderr,
        "error: `keys.json` is a list of keys and shapes, which holds no tensors; use `overglaze check`, as an \
         adapter or with --model-keys\n"
    );
}
