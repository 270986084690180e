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

#[test]
fn the_same_run_writes_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let lora = demo_file("more/negative.safetensors");
    let saved = |name: &str| {
        let arguments = [
            "sample",
            "--prompt",
            "bag",
            "--steps",
            "1",
            "--lora",
            text(&lora),
        ];
        let run = overglaze(
            folder.path(),
            &[&arguments[..], &["--save-latents", name]].concat(),
        );
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        fs::read(folder.path().join(name)).unwrap()
    };
    let first = saved("a.safetensors");
    // Four entries in an order by chance would be the same in one of 24 runs.
    for name in ["b.safetensors", "c.safetensors", "d.safetensors"] {
        assert!(saved(name) == first);
    }
}

#[test]
fn noise_from_a_file_is_named_in_place_of_the_seed() {
    let folder = tempfile::tempdir().unwrap();
    let noise: Vec<f32> = (0..1024_u16).map(|i| f32::from(i % 7) - 3.0).collect();
    crate::overglaze::write_tensors(
        &folder.path().join("n.safetensors"),
        &[("x", &[1, 64, 16], noise)],
    );
    let run = overglaze(
        folder.path(),
        &[
            "sample",
            "--prompt",
            "bag",
            "--steps",
            "1",
            "--noise",
            "n.safetensors",
            "--save-latents",
            "l.safetensors",
        ],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let bytes = fs::read(folder.path().join("l.safetensors")).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = &header.metadata().as_ref().unwrap()["overglaze"];
    assert_eq!(
        metadata,
        r#"{"loras":"","model":"demo","noise":"n.safetensors","steps":"1"}"#
    );
}
