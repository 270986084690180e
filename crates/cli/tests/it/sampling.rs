//! `sample`: one set of adapters.

use std::fs;

use crate::overglaze::{demo_file, overglaze, text};

#[test]
fn a_picture_a_prompt_and_the_latents() {
    let folder = tempfile::tempdir().unwrap();
    let lora = demo_file("loras/outline-epoch-20.safetensors");
    let weighted = format!("{}:0.5", text(&lora));
    let run = overglaze(
        folder.path(),
        &[
            "sample",
            "--prompt",
            "boot",
            "--prompt",
            "Bag ",
            "--steps",
            "2",
            "--json",
            "--lora",
            &weighted,
            "--lora",
            text(&lora),
            "--save-latents",
            "l.safetensors",
            "-o",
            "two.png",
        ],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let document = run.json();
    assert_eq!(document["version"], 1);
    assert_eq!(document["picture"], "two.png");
    assert_eq!(document["loras"][0]["strength"], 0.5);
    assert_eq!(document["loras"][1]["keys_applied"], 78);
    let bytes = fs::read(folder.path().join("l.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.tensor("latents").unwrap().shape(), [2, 64, 16]);
    let picture = image::open(folder.path().join("two.png")).unwrap();
    assert!(picture.width() > 2 * 140 && picture.height() > 140);
}

#[test]
fn a_seed_gives_the_same_picture_again_and_another_seed_another() {
    let folder = tempfile::tempdir().unwrap();
    let sample = |seed: &str| {
        let run = overglaze(
            folder.path(),
            &["sample", "--prompt", "bag", "--steps", "1", "--seed", seed],
        );
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!(run.stdout.contains("s/image") && run.stdout.contains("picture: out.png"));
        let picture = image::open(folder.path().join("out.png"))
            .unwrap()
            .into_rgb8();
        // Below the title, which names the seed.
        image::imageops::crop_imm(&picture, 0, 24, picture.width(), picture.height() - 24)
            .to_image()
    };
    assert!(sample("5") == sample("5"));
    assert!(sample("5") != sample("6"));
}
