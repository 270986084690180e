//! A checkpoint on disk: conditioning from a file, latents out, a preview on the sheet.

use std::{fs, path::Path};

use crate::overglaze::{demo_file, overglaze, text, write_tensors};

/// The demo's folder stands in for any FLUX checkpoint: as `--model` it is not the demo.
fn sweep(folder: &Path, more: &[&str]) -> crate::overglaze::Run {
    let (model, loras) = (
        demo_file("transformer"),
        demo_file("loras/outline-epoch-20.safetensors"),
    );
    let arguments = [
        "sweep",
        "--model",
        text(&model),
        "--loras",
        text(&loras),
        "--steps",
        "2",
    ];
    overglaze(folder, &[&arguments, more].concat())
}

fn write_conditioning(path: &Path) {
    let ramp = |count: usize| {
        (0..count)
            .map(|value| value as f32 / count as f32)
            .collect()
    };
    write_tensors(
        path,
        &[
            ("encoder_hidden_states", &[2, 3, 64], ramp(384)),
            ("pooled_projections", &[2, 64], ramp(128)),
        ],
    );
}

#[test]
fn latents_are_saved_and_previewed() {
    let folder = tempfile::tempdir().unwrap();
    write_conditioning(&folder.path().join("c.safetensors"));
    let given = [
        "--conditioning",
        "c.safetensors",
        "--size",
        "96x64",
        "--save-latents",
        "l.safetensors",
    ];
    let run = sweep(folder.path(), &[&given[..], &["--json"]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let bytes = fs::read(folder.path().join("l.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for name in ["no_lora", "outline-epoch-20"] {
        let tensor = tensors.tensor(name).unwrap();
        assert_eq!(tensor.shape(), [2, 6 * 4, 16]);
        assert!(tensor.data().iter().any(|byte| *byte != 0));
    }
    let sheet = image::open(folder.path().join("sheet.png"))
        .unwrap()
        .into_rgb8();
    let colorful = |pixel: &image::Rgb<u8>| pixel.0[0].abs_diff(pixel.0[2]) > 40;
    assert!(
        sheet.pixels().filter(|pixel| colorful(pixel)).count() > 1000,
        "the preview has colors"
    );
}

#[test]
fn the_streamed_checkpoint_gives_the_same_latents() {
    let folder = tempfile::tempdir().unwrap();
    write_conditioning(&folder.path().join("c.safetensors"));
    let saved = |name: &str, budget: &[&str]| {
        let given = [
            "--conditioning",
            "c.safetensors",
            "--size",
            "64x64",
            "--save-latents",
            name,
        ];
        let run = sweep(folder.path(), &[&given, budget].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let bytes = fs::read(folder.path().join(name)).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        ["no_lora", "outline-epoch-20"].map(|name| tensors.tensor(name).unwrap().data().to_vec())
    };
    assert!(saved("a.safetensors", &[]) == saved("b.safetensors", &["--device-budget", "700kB"]));
}

#[test]
fn what_needs_text_encoders_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let check = |more: &[&str], expected: &str| {
        let run = sweep(folder.path(), more);
        assert_eq!((run.code, run.stderr.as_str()), (Some(2), expected));
    };
    check(
        &["--prompt", "boot"],
        "error: text prompts need text encoders, which are not part of this version; for `transformer` give \
         --conditioning FILE.safetensors with encoder_hidden_states and pooled_projections\n",
    );
    check(
        &[],
        "error: `transformer` needs --conditioning FILE.safetensors with encoder_hidden_states [prompts, \
         tokens, width] and pooled_projections [prompts, width]\n",
    );
    check(
        &["--guidance", "2"],
        "error: --guidance does not apply to transformer: the model has no guidance embedding, so leave it \
         out\n",
    );
    let model = demo_file("transformer");
    let run = overglaze(folder.path(), &["sweep", "--model", text(&model)]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
}

#[test]
fn guidance_that_the_model_does_not_take_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    write_tensors(
        &folder.path().join("c.safetensors"),
        &[
            ("encoder_hidden_states", &[1, 1, 64], vec![0.5; 64]),
            ("pooled_projections", &[1, 64], vec![0.5; 64]),
            ("guidance", &[1], vec![3.5]),
        ],
    );
    let given = ["--conditioning", "c.safetensors", "--size", "32x32"];
    let run = sweep(folder.path(), &given);
    let note = "note: the conditioning file's guidance is not used: transformer has no guidance embedding\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), note));
    let run = sweep(folder.path(), &[&given[..], &["--quiet"]].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn conditioning_that_holds_no_numbers_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut pooled = vec![0.5; 64];
    pooled[9] = f32::INFINITY;
    write_tensors(
        &folder.path().join("c.safetensors"),
        &[
            ("encoder_hidden_states", &[1, 1, 64], vec![0.5; 64]),
            ("pooled_projections", &[1, 64], pooled),
        ],
    );
    let run = sweep(folder.path(), &["--conditioning", "c.safetensors"]);
    let expected =
        "error: c.safetensors: tensor `pooled_projections` holds inf, expected finite numbers\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(1), expected));
}
