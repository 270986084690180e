//! `inspect`: what is in a file.

use std::path::Path;

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
  against b.safetensors: 2 names in both, 1 only here, 1 only there, 1 with another shape
    only here   y
    only there  z
    [2] here, [3] there  x
";
    assert!(run.stdout.contains(expected), "{}", run.stdout);
}
