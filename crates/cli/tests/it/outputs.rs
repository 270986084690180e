//! What a command writes: never over what it reads, and refused before anything is sampled.

use std::{fs, path::Path};

use crate::{
    messages::check,
    overglaze::{demo_file, files, overglaze, overglaze_line, text, write_tensors},
};

/// Sampling that takes minutes, so that a test that ends has not sampled.
const LONG: [&str; 2] = ["--steps", "1000"];

fn refused(folder: &Path, arguments: &[&str], output: &str, other: &str) {
    let expected = format!(
        "the output `{output}` is the same file as `{other}`, which would be overwritten; choose another name"
    );
    check(folder, &[arguments, &LONG].concat(), 2, &expected);
}

#[test]
fn no_input_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("loras")).unwrap();
    let lora = demo_file("more/negative.safetensors");
    for name in ["a.safetensors", "loras/b.safetensors", "words.png"] {
        fs::copy(&lora, path(name)).unwrap();
    }
    let before = fs::read(path("a.safetensors")).unwrap();
    let check = |arguments: &[&str], output: &str, other: &str| {
        refused(folder.path(), arguments, output, other);
    };
    let (a, b) = ("a.safetensors", "loras/b.safetensors");
    check(&["sample", "--lora", a, "--save-latents", a], a, a);
    check(
        &["sample", "--lora", a, "--save-latents", "./a.safetensors"],
        "./a.safetensors",
        a,
    );
    check(&["sample", "--noise", a, "--save-latents", a], a, a);
    check(&["sample", "--conditioning", a, "--save-latents", a], a, a);
    check(&["sweep", "--loras", "loras", "--save-latents", b], b, b);
    check(
        &["sample", "--prompts", "words.png", "-o", "words.png"],
        "words.png",
        "words.png",
    );
    check(
        &[
            "sweep",
            "--model",
            a,
            "--loras",
            "loras",
            "--save-latents",
            a,
        ],
        a,
        a,
    );
    assert_eq!(fs::read(path(a)).unwrap(), before);
    assert_eq!(
        files(folder.path()),
        ["a.safetensors", "loras", "words.png"]
    );
}

#[test]
fn a_name_no_file_can_have_is_told_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("{}.png", "x".repeat(300));
    for (name, why) in [
        ("x.png/", "it is a folder; name a file in it"),
        (&long, "its name is too long; file systems take 255 bytes"),
    ] {
        let run = overglaze(folder.path(), &["sample", "--prompt", "boot", "-o", name]);
        assert_eq!(run.code, Some(2), "{name}");
        assert!(
            run.stderr.ends_with(&format!("cannot be written: {why}\n")),
            "{}",
            run.stderr
        );
        assert_eq!(files(folder.path()), Vec::<String>::new());
    }
}

#[cfg(unix)]
#[test]
fn links_do_not_hide_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::copy(
        demo_file("more/negative.safetensors"),
        path("a.safetensors"),
    )
    .unwrap();
    fs::hard_link(path("a.safetensors"), path("hard.safetensors")).unwrap();
    std::os::unix::fs::symlink("a.safetensors", path("soft.safetensors")).unwrap();
    std::os::unix::fs::symlink("new.safetensors", path("both.png")).unwrap();
    for link in ["hard.safetensors", "soft.safetensors"] {
        let arguments = ["sample", "--lora", "a.safetensors", "--save-latents", link];
        refused(folder.path(), &arguments, link, "a.safetensors");
    }
    fs::write(path("new.safetensors"), "").unwrap();
    let arguments = [
        "sample",
        "-o",
        "both.png",
        "--save-latents",
        "new.safetensors",
    ];
    refused(folder.path(), &arguments, "new.safetensors", "both.png");
}

#[test]
fn a_lora_called_as_the_headers_entry_is_saved_under_its_whole_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("loras")).unwrap();
    let lora = demo_file("more/negative.safetensors");
    fs::copy(lora, folder.path().join("loras/__metadata__.safetensors")).unwrap();
    let run = overglaze_line(
        folder.path(),
        "sweep --prompt bag --steps 1 --loras loras --json --save-latents l.safetensors",
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let bytes = fs::read(folder.path().join("l.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let name = "__metadata__.safetensors";
    assert_eq!(tensors.tensor(name).unwrap().shape(), [1, 64, 16]);
    let document = run.json();
    assert_eq!(document["latents"]["no LoRA"], "no_lora");
    assert_eq!(document["latents"][name], name);
}

#[test]
fn results_that_are_no_numbers_fail_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let lora = demo_file("more/negative.safetensors");
    let line = format!(
        "sweep --prompt bag --steps 1 --strengths 1,3e38 --json --loras {}",
        text(&lora)
    );
    let run = overglaze_line(folder.path(), &line);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert_eq!(
        run.stderr,
        "error: the results of `negative @3e38` hold NaN or infinite values, which no picture shows; lower the \
         strength, or check the model and the LoRA\n"
    );
    assert_eq!(
        run.json()["non_finite"],
        serde_json::json!(["negative @3e38"])
    );
    let arguments = [
        "sample",
        "--prompt",
        "bag",
        "--steps",
        "1",
        "--lora",
        &format!("{}:3e38", text(&lora)),
        "-o",
        "good.png",
    ];
    fs::write(folder.path().join("good.png"), "of yesterday").unwrap();
    let run = overglaze(folder.path(), &arguments);
    assert_eq!(run.code, Some(1));
    let expected = "error: the results of the sample hold NaN or infinite values";
    assert!(run.stderr.starts_with(expected), "{}", run.stderr);
    let picture = fs::read_to_string(folder.path().join("good.png"));
    assert_eq!(picture.unwrap(), "of yesterday");
}

#[test]
fn a_picture_that_is_too_large_is_refused_before_sampling() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = 2000;
    let (hidden, pooled) = ([prompts, 1, 64], [prompts, 64]);
    write_tensors(
        &folder.path().join("c.safetensors"),
        &[
            ("encoder_hidden_states", &hidden, vec![0.5; prompts * 64]),
            ("pooled_projections", &pooled, vec![0.5; prompts * 64]),
        ],
    );
    // 2000 rows of 6 columns of more than 140 x 140 pixels are within the limit, 11 columns are not.
    let strengths = "1,2";
    let sweep = [
        "sweep",
        "--conditioning",
        "c.safetensors",
        "--strengths",
        strengths,
    ];
    let run = overglaze(folder.path(), &[&sweep[..], &LONG].concat());
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stderr
            .contains("more than the 400000000 this command draws"),
        "{}",
        run.stderr
    );
    assert_eq!(files(folder.path()), ["c.safetensors"]);
}

#[test]
fn failures_are_documents_too() {
    let folder = tempfile::tempdir().unwrap();
    let run = overglaze_line(folder.path(), "sweep --loras none --json");
    let error = "`none` does not exist; check the path";
    assert_eq!(
        (run.code, run.json()),
        (Some(1), serde_json::json!({"version": 1, "error": error}))
    );
    assert_eq!(run.stderr, format!("error: {error}\n"));
    let run = overglaze_line(folder.path(), "sweep --steps 0 --json");
    assert_eq!((run.code, &run.json()["version"]), (Some(2), &1.into()));
    let error = run.json()["error"].as_str().unwrap().to_owned();
    assert!(
        error.starts_with("invalid value '0' for '--steps <N>'"),
        "{error}"
    );
}

#[test]
fn an_output_among_the_loras_is_not_listed_before_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let lora = demo_file("more/negative.safetensors");
    fs::copy(lora, folder.path().join("a.safetensors")).unwrap();
    let run = overglaze_line(
        folder.path(),
        "sweep --prompt bag --steps 1 --loras . --json",
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.json()["skipped"], serde_json::json!([]));
    assert_eq!(files(folder.path()), ["a.safetensors", "sheet.png"]);
}
