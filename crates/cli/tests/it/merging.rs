//! `merge`: adapters baked into a new checkpoint.

use std::{fs, path::Path, sync::Arc};

use bytes::Bytes;
use overglaze_cli::{Latents, demo, device, loras};
use overglaze_core::{adapter_file, mount, open};
use overglaze_models::{FluxModel, flux::FluxLoadOptions};
use overglaze_stream::{MemorySource, WeightSource};
use serde_json::{Value, json};

use crate::{
    demo_numbers::sampled,
    overglaze::{Run, command, demo_file, files, overglaze, overglaze_line, text, write_tensors},
    reference::{values, worst},
};

fn outline() -> std::path::PathBuf {
    demo_file("loras/outline-epoch-20.safetensors")
}

fn base() -> std::path::PathBuf {
    demo_file("transformer/diffusion_pytorch_model.safetensors")
}

/// Merges `lora` into the demo's file as `out.safetensors`.
fn merge(folder: &Path, lora: &str, more: &[&str]) -> Run {
    let base = base();
    let given = [
        "merge",
        "--model",
        text(&base),
        "--lora",
        lora,
        "-o",
        "out.safetensors",
    ];
    overglaze(folder, &[&given, more].concat())
}

fn record(source: &dyn WeightSource) -> Value {
    serde_json::from_str(&source.metadata()["overglaze.merged"]).unwrap()
}

fn latents(source: Arc<dyn WeightSource>, lora: Option<&Path>) -> Latents {
    let device = device::host().unwrap();
    let options = FluxLoadOptions {
        config: Some(demo::config().unwrap()),
        ..FluxLoadOptions::resident(device.clone())
    };
    let mut model = FluxModel::load(source, options).unwrap();
    if let Some(path) = lora {
        let set = adapter_file::load(path, &device).unwrap();
        mount(&mut model.transformer, &loras::name(path), &set, 1.0).unwrap();
    }
    sampled(&model, &device)
}

#[test]
fn the_merged_model_samples_what_the_sidecar_does() {
    let folder = tempfile::tempdir().unwrap();
    let run = merge(folder.path(), text(&outline()), &[]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let mut lines = run.stdout.lines();
    let first = lines.next().unwrap();
    assert_eq!(
        first,
        "outline-epoch-20.safetensors at 1: 78 keys applied, 0 left over"
    );
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("39 of 122 tensors changed, 0.002 GB in ")
    );
    assert_eq!(lines.next(), Some("model: out.safetensors"));
    let merged = latents(open(&folder.path().join("out.safetensors")).unwrap(), None);
    let beside = latents(open(&base()).unwrap(), Some(&outline()));
    // Weights of up to about 1 are rounded to bf16 (2^-9) after the residual of about a tenth is added; over
    // twenty steps that grows to less than a fiftieth of what the LoRA does.
    let effect = worst(beside.values(), &values("out.base"));
    let rounding = worst(merged.values(), beside.values());
    assert!(
        effect > 0.5 && rounding < effect / 20.0,
        "{rounding} of {effect}"
    );
}

#[test]
fn everything_else_stays_and_the_metadata_say_what_was_merged() {
    let folder = tempfile::tempdir().unwrap();
    let at = |strength: &str| format!("{}:{strength}", text(&outline()));
    assert_eq!(merge(folder.path(), &at("0.5"), &[]).code, Some(0));
    let first = fs::read(folder.path().join("out.safetensors")).unwrap();
    assert_eq!(merge(folder.path(), &at("0.5"), &[]).code, Some(0));
    let second = fs::read(folder.path().join("out.safetensors")).unwrap();
    assert!(first == second, "a merge makes the same file each time");
    let (before, after) = (
        open(&base()).unwrap(),
        MemorySource::from_safetensors("out", Bytes::from(first)).unwrap(),
    );
    let changed = before.entries().keys().filter(|name| {
        assert_eq!(before.entries()[*name].tag, after.entries()[*name].tag);
        before.read(name).unwrap() != after.read(name).unwrap()
    });
    let changed: Vec<_> = changed.collect();
    assert_eq!(changed.len(), 39);
    assert!(changed.iter().all(|name| name.ends_with(".weight")));
    assert_eq!(after.metadata()["format"], "pt");
    let hash = overglaze_core::fingerprint::Fingerprint::of_file(&outline()).unwrap();
    let lora = json!({
        "name": "outline-epoch-20.safetensors", "strength": 0.5, "block_strengths": [], "blake3": hash.to_hex(), "keys_applied": 78,
    });
    let expected = json!({"version": 1, "overglaze": env!("CARGO_PKG_VERSION"), "loras": [lora]});
    assert_eq!(record(&after), expected);
}

#[test]
fn a_merged_model_is_merged_into_again() {
    let folder = tempfile::tempdir().unwrap();
    let (outline, negative) = (outline(), demo_file("more/negative.safetensors"));
    assert_eq!(merge(folder.path(), text(&outline), &[]).code, Some(0));
    let given = [
        "merge",
        "--model",
        "out.safetensors",
        "-o",
        "again.safetensors",
    ];
    let loras = [
        "--lora",
        text(&negative),
        "--lora",
        text(&negative),
        "--json",
    ];
    let run = overglaze(folder.path(), &[&given[..], &loras].concat());
    let document = run.json();
    assert_eq!(document["version"], 1);
    assert_eq!(document["output"], "again.safetensors");
    assert_eq!(document["loras"][1]["keys_applied"], 66);
    assert_eq!(document["loras"][1]["targets"][0]["outcome"], "applied");
    let record = record(&*open(&folder.path().join("again.safetensors")).unwrap());
    let loras = record["loras"].as_array().unwrap();
    let names: Vec<_> = loras
        .iter()
        .map(|lora| lora["name"].as_str().unwrap())
        .collect();
    let negative = "negative.safetensors";
    assert_eq!(names, ["outline-epoch-20.safetensors", negative, negative]);
}

#[test]
fn blocks_have_strengths_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let block = "double_blocks.*=0";
    let run = merge(
        folder.path(),
        text(&outline()),
        &["--block-strength", block],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let (before, after) = (
        open(&base()).unwrap(),
        open(&folder.path().join("out.safetensors")).unwrap(),
    );
    let changed = before.entries().keys();
    let changed: Vec<_> = changed
        .filter(|name| before.read(name).unwrap() != after.read(name).unwrap())
        .collect();
    assert!(
        !changed.is_empty() && changed.iter().all(|name| name.starts_with("single_")),
        "{changed:?}"
    );
    assert_eq!(
        record(&*after)["loras"][0]["block_strengths"],
        json!([block])
    );
}

#[test]
fn strength_0_copies_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let lora = format!("{}:0", text(&outline()));
    let run = merge(folder.path(), &lora, &[]);
    assert!(
        run.stdout.contains("\n0 of 122 tensors changed"),
        "{}",
        run.stdout
    );
    let (before, after) = (base(), folder.path().join("out.safetensors"));
    let (before, after) = (open(&before).unwrap(), open(&after).unwrap());
    for name in before.entries().keys() {
        assert_eq!(
            before.read(name).unwrap(),
            after.read(name).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn an_input_is_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::copy(base(), path("model.safetensors")).unwrap();
    fs::copy(outline(), path("lora.safetensors")).unwrap();
    fs::hard_link(path("model.safetensors"), path("hard.safetensors")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("model.safetensors", path("soft.safetensors")).unwrap();
    let before = fs::read(path("model.safetensors")).unwrap();
    for output in ["model", "lora", "hard", "soft", "./model"] {
        let line = "merge --model model.safetensors --lora lora.safetensors -o";
        let run = overglaze_line(folder.path(), &format!("{line} {output}.safetensors"));
        assert_eq!(run.code, Some(2), "{output}: {}", run.stderr);
        let expected = format!("error: the output `{output}.safetensors` is the same file as `");
        assert!(run.stderr.starts_with(&expected), "{}", run.stderr);
    }
    assert!(fs::read(path("model.safetensors")).unwrap() == before);
    assert_eq!(files(folder.path()).len(), 4, "nothing is left behind");
}

#[test]
fn what_does_not_fit_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let stranger = folder.path().join("stranger.safetensors");
    let tensor = |name: &'static str, shape: &'static [usize]| {
        (name, shape, vec![1.0; shape.iter().product()])
    };
    write_tensors(
        &stranger,
        &[
            tensor("transformer.elsewhere.lora_A.weight", &[2, 4]),
            tensor("transformer.elsewhere.lora_B.weight", &[8, 2]),
        ],
    );
    let partial = folder.path().join("partial.safetensors");
    write_tensors(
        &partial,
        &[
            tensor("transformer.elsewhere.lora_A.weight", &[2, 4]),
            tensor("transformer.elsewhere.lora_B.weight", &[8, 2]),
            tensor("transformer.proj_out.lora_A.weight", &[2, 96]),
            tensor("transformer.proj_out.lora_B.weight", &[16, 2]),
        ],
    );
    let nothing = merge(folder.path(), "stranger.safetensors", &[]);
    assert_eq!(nothing.code, Some(3));
    let expected =
        "error: adapter `stranger.safetensors` does not fit this model: none of its 2 keys";
    assert!(nothing.stderr.starts_with(expected), "{}", nothing.stderr);
    let strict = merge(folder.path(), "partial.safetensors", &["--strict"]);
    assert_eq!(strict.code, Some(3));
    let end = "nothing written: keys are left over, and --strict was given\n";
    assert!(strict.stdout.ends_with(end), "{}", strict.stdout);
    assert_eq!(
        files(folder.path()),
        ["partial.safetensors", "stranger.safetensors"]
    );
    let lenient = merge(folder.path(), "partial.safetensors", &[]);
    assert_eq!(lenient.code, Some(0));
    assert!(
        lenient
            .stdout
            .contains("partial.safetensors at 1: 2 keys applied, 2 left over\n  unmatched")
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_without_room_is_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("out.safetensors"), "from before").unwrap();
    let (base, outline) = (base(), outline());
    let merge = command(
        folder.path(),
        &[
            "merge",
            "--model",
            text(&base),
            "--lora",
            text(&outline),
            "-o",
            "out.safetensors",
        ],
    );
    // A limit on the size of files stands in for a full disk: about half a megabyte, with its signal (25) ignored.
    let mut limited = std::process::Command::new("sh");
    limited
        .current_dir(folder.path())
        .args(["-c", "trap '' 25; ulimit -f 1000; exec \"$0\" \"$@\""])
        .arg(merge.get_program())
        .args(merge.get_args());
    let output = limited.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    let expected = "error: `out.safetensors` cannot be written; check the free space and the permissions: File too large";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(files(folder.path()), ["out.safetensors"]);
    let kept = fs::read_to_string(folder.path().join("out.safetensors")).unwrap();
    assert_eq!(kept, "from before");
}

#[test]
fn an_adapter_for_transposed_weights_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let peft = folder.path().join("peft");
    fs::create_dir(&peft).unwrap();
    write_tensors(
        &peft.join("adapter_model.safetensors"),
        &[
            (
                "base_model.model.proj_out.lora_A.weight",
                &[2, 96],
                vec![1.0; 192],
            ),
            (
                "base_model.model.proj_out.lora_B.weight",
                &[16, 2],
                vec![1.0; 32],
            ),
        ],
    );
    let check = |is_transposed: bool, code: i32, expected: &str| {
        let config =
            json!({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "fan_in_fan_out": is_transposed});
        fs::write(peft.join("adapter_config.json"), config.to_string()).unwrap();
        let run = merge(folder.path(), "peft", &[]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(code), expected));
    };
    check(
        true,
        1,
        "error: `peft` is for a model whose linear weights are stored as [d_input, d_output] (`fan_in_fan_out` in its \
         configuration), and merging into such a checkpoint is not supported; leave it out\n",
    );
    check(false, 0, "");
}

#[test]
fn the_output_is_a_safetensors_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = overglaze_line(folder.path(), "merge --lora a.safetensors -o out.png");
    assert_eq!(run.code, Some(2));
    let expected = "error: `out.png` cannot be written: the model is a safetensors file, so let the name end in \
                    .safetensors\n";
    assert_eq!(run.stderr, expected);
}
