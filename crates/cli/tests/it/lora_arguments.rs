//! How adapters are laid over a model: `FILE[:STRENGTH]`, `--block-strength` and `--placement`.

use std::fs;

use overglaze_cli::lora_arg::{BlockStrength, LoraArg, strengths};
use safetensors::SafeTensors;

use crate::overglaze::{demo_file, overglaze, overglaze_line, text};

#[test]
fn the_strength_follows_the_last_colon() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("epoch:10");
    fs::write(&odd, "").unwrap();
    let odd = odd.to_str().unwrap();
    let check = |text: &str, path: &str, strength: f32| {
        assert_eq!(
            text.parse(),
            Ok(LoraArg {
                path: path.into(),
                strength
            }),
            "{text}"
        );
    };
    check("a.safetensors", "a.safetensors", 1.0);
    check("a.safetensors:0.7", "a.safetensors", 0.7);
    check("a.safetensors:-1", "a.safetensors", -1.0);
    check("a.safetensors:high", "a.safetensors:high", 1.0);
    check(odd, odd, 1.0);
    check(&format!("{odd}:0.5"), odd, 0.5);
}

#[test]
fn a_strength_is_finite() {
    let error = "a.safetensors:inf".parse::<LoraArg>().unwrap_err();
    assert_eq!(error, "the strength inf is not a finite number");
    let error = "a.safetensors:1e-50".parse::<LoraArg>().unwrap_err();
    assert_eq!(error, "the strength 1e-50 is too small to be told from 0");
    let lora: LoraArg = "a.safetensors:0".parse().unwrap();
    assert_eq!(lora.strength, 0.0);
}

#[test]
fn a_block_strength_is_a_pattern_and_a_factor() {
    let check = |text: &str, expected: Option<(&str, f32)>| {
        let expected = expected.map(|(pattern, factor)| BlockStrength {
            pattern: pattern.into(),
            factor,
        });
        assert_eq!(text.parse().ok(), expected, "{text}");
    };
    check("double_blocks.0.*=0.5", Some(("double_blocks.0.*", 0.5)));
    check("*=-1", Some(("*", -1.0)));
    for wrong in ["", "=1", "*", "*=", "*=inf", "*=much"] {
        check(wrong, None);
    }
}

#[test]
fn factors_multiply_the_loras_strength() {
    let blocks: Vec<BlockStrength> = ["a.*=0.5", "a.b=0"]
        .map(|text| text.parse().unwrap())
        .into();
    assert_eq!(strengths(0.5, &blocks).to_string(), "0.5,a.*=0.25,a.b=0");
}

/// Latents of one step with the outline LoRA and `more`.
fn latents(folder: &std::path::Path, name: &str, more: &[&str]) -> Vec<u8> {
    let lora = demo_file("loras/outline-epoch-20.safetensors");
    let given = [
        "sample",
        "--lora",
        text(&lora),
        "--prompt",
        "bag",
        "--steps",
        "1",
        "--save-latents",
        name,
    ];
    let run = overglaze(folder, &[&given, more].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let file = fs::read(folder.join(name)).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    tensors.tensor("latents").unwrap().data().to_vec()
}

#[test]
fn blocks_are_turned_down_and_off() {
    let folder = tempfile::tempdir().unwrap();
    let sample = |more: &[&str]| latents(folder.path(), "l.safetensors", more);
    let (full, half) = (sample(&[]), sample(&["--block-strength", "*=0.5"]));
    let off = sample(&[
        "--block-strength",
        "*=0.5",
        "--block-strength",
        "transformer_blocks.*=0",
        "--block-strength",
        "single_transformer_blocks.*=0",
    ]);
    let run = overglaze_line(
        folder.path(),
        "sample --prompt bag --steps 1 --save-latents b.safetensors",
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let bare = fs::read(folder.path().join("b.safetensors")).unwrap();
    let bare = SafeTensors::deserialize(&bare)
        .unwrap()
        .tensor("latents")
        .unwrap()
        .data()
        .to_vec();
    assert!(full != half && half != bare);
    assert!(off == bare, "nothing is left of it");
}

#[test]
fn a_lora_goes_beside_the_weights_or_into_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let sample =
        |placement: &str| latents(folder.path(), "l.safetensors", &["--placement", placement]);
    let [sidecar, direct, auto] = ["sidecar", "direct", "auto"].map(sample);
    assert!(sidecar != direct, "the copy is rounded to bf16");
    assert!(
        direct == auto,
        "the demo's weights are in place, and floats"
    );
}

#[test]
fn what_cannot_be_laid_is_told_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let check = |line: &str, code: i32, expected: &str| {
        let run = overglaze_line(folder.path(), line);
        assert_eq!(
            (run.code, run.stderr.contains(expected)),
            (Some(code), true),
            "{line}: {}",
            run.stderr
        );
    };
    check(
        "sweep --block-strength dubble_blocks.*=0",
        2,
        "the strength pattern `dubble_blocks.*` matches no layer of the model; nearest: `double_blocks.*`",
    );
    check(
        "sweep --placement direct --device-budget 800KB",
        2,
        "is streamed under --device-budget or --host-budget",
    );
    check(
        "sweep --placement above",
        2,
        "[possible values: sidecar, direct, auto]",
    );
    check(
        "sample --block-strength *=0.5",
        2,
        "--block-strength does not apply to a sample without LoRAs: name one with --lora, or leave it out",
    );
    check(
        "sample --placement auto",
        2,
        "--placement does not apply to a sample without LoRAs",
    );
    check(
        "sweep --block-strength half",
        2,
        "expected PATTERN=FACTOR, such as 'double_blocks.0.*=0.5'",
    );
}
