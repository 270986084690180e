//! Inputs that are no files, too large, links that lead nowhere, and names that move a terminal's cursor.

use std::fs;

use crate::{
    messages::check,
    overglaze::{demo_file, overglaze, overglaze_line, text, write_tensors},
};

#[cfg(target_os = "linux")]
#[test]
fn what_is_no_regular_file_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path().join("pipe"))
        .status();
    assert!(made.unwrap().success());
    let model = demo_file("transformer");
    for path in ["pipe", "/dev/zero"] {
        let expected = format!("`{path}` is not a regular file; name a file");
        for arguments in [
            &["check", "x", "--model-keys", path][..],
            &["sweep", "--prompts", path],
            &["sample", "--model", text(&model), "--config", path],
            &["sweep", "--loras", path],
        ] {
            check(folder.path(), arguments, 1, &expected);
        }
        for arguments in [
            ["sample", "--conditioning", path],
            ["sample", "--lora", path],
        ] {
            let run = overglaze(folder.path(), &arguments);
            assert_eq!(run.code, Some(1), "{arguments:?}: {}", run.stderr);
            assert!(run.stderr.contains("regular file"), "{}", run.stderr);
        }
    }
}

#[test]
fn documents_are_of_a_sane_size() {
    let folder = tempfile::tempdir().unwrap();
    let large = fs::File::create(folder.path().join("large")).unwrap();
    large.set_len((1 << 20) + 1).unwrap();
    let expected =
        "`large` is larger than 1048576 bytes, the most such a file may have; check the path";
    check(folder.path(), &["sweep", "--prompts", "large"], 1, expected);
    let arguments = ["inspect", "large", "--config", "large"];
    check(folder.path(), &arguments, 1, expected);
    let model = "model.safetensors";
    fs::copy(
        demo_file("transformer/diffusion_pytorch_model.safetensors"),
        folder.path().join(model),
    )
    .unwrap();
    fs::rename(
        folder.path().join("large"),
        folder.path().join("config.json"),
    )
    .unwrap();
    let run = overglaze(folder.path(), &["check", model, "--model", model]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.ends_with(
            "cannot be read: it is larger than 1 MiB, the most such a document may have\n"
        ),
        "{}",
        run.stderr
    );
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let link = |to: &str, from: &str| {
        std::os::unix::fs::symlink(to, folder.path().join(from)).unwrap();
    };
    link("gone.safetensors", "a.safetensors");
    link("loop.safetensors", "loop.safetensors");
    check(
        folder.path(),
        &["inspect", "a.safetensors"],
        1,
        "`a.safetensors` is a link to `gone.safetensors`, which does not exist; check the link",
    );
    check(
        folder.path(),
        &["sample", "--lora", "loop.safetensors"],
        1,
        "`loop.safetensors` is a link to `loop.safetensors`, which leads nowhere; check the link",
    );
}

#[test]
fn names_are_shown_without_control_characters_and_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let long = "n".repeat(300);
    write_tensors(
        &folder.path().join("a.safetensors"),
        &[("\u{1b}[2J\nx", &[1], vec![0.0]), (&long, &[1], vec![0.0])],
    );
    let shown = overglaze_line(folder.path(), "inspect a.safetensors").stdout;
    assert!(shown.contains("\\u{1b}[2J\\u{a}x"), "{shown}");
    assert!(!shown.contains('\u{1b}'));
    let short = format!("{}…{}", "n".repeat(59), "n".repeat(59));
    assert!(shown.contains(&short) && !shown.contains(&long), "{shown}");
    let run = overglaze_line(folder.path(), "sweep --prompt bag --noise a.safetensors");
    assert_eq!(run.code, Some(1));
    let run = overglaze(folder.path(), &["sample", "--lora", "\u{1b}[2J"]);
    assert_eq!(
        run.stderr,
        "error: `\\u{1b}[2J` does not exist; check the path\n"
    );
}

#[test]
fn an_adapter_in_a_gguf_file_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.gguf"), "GGUF").unwrap();
    let expected =
        "`a.gguf` is a GGUF file, and adapters are not read from those: convert it to safetensors";
    check(folder.path(), &["check", "a.gguf"], 1, expected);
}

#[test]
fn the_name_of_an_output_is_shown_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let name = "a\nmodel: b\u{1b}[2J.gguf";
    let arguments = ["quantize", "--format", "q8_0", "-o", name];
    let run = overglaze(folder.path(), &arguments);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let expected = "\nmodel: a\\u{a}model: b\\u{1b}[2J.gguf\n";
    assert!(run.stdout.ends_with(expected), "{}", run.stdout);
}

#[test]
fn prompts_are_utf8_and_errors_name_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |contents: &[u8]| fs::write(folder.path().join("p"), contents).unwrap();
    write(b"\xef\xbb\xbfbag\r\n");
    let run = overglaze_line(folder.path(), "sample --prompts p --steps 1");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    write(b"bag\nb\xffg\n");
    let expected = "`p`, line 2: not UTF-8 text; save the file as UTF-8";
    check(folder.path(), &["sample", "--prompts", "p"], 1, expected);
}

#[test]
fn a_folder_of_loras_is_no_lora() {
    let folder = tempfile::tempdir().unwrap();
    let loras = demo_file("loras");
    let expected = format!(
        "`{}` is a folder of LoRAs (5); use `overglaze sweep --loras`, or name one",
        text(&loras)
    );
    check(
        folder.path(),
        &["sample", "--lora", text(&loras)],
        2,
        &expected,
    );
    let run = overglaze(folder.path(), &["inspect", text(&loras), "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.json()["files"].as_array().unwrap().len(), 5);
}

#[test]
fn an_unreadable_file_does_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let lora = demo_file("more/negative.safetensors");
    let arguments = ["inspect", "none", text(&lora), "--json"];
    let run = overglaze(folder.path(), &arguments);
    assert_eq!(run.code, Some(1));
    let error = "`none` does not exist; check the path";
    assert_eq!(
        run.stderr,
        format!("error: 1 of 2 files cannot be inspected; the first, {error}\n")
    );
    let files = &run.json()["files"];
    assert_eq!(
        files[0],
        serde_json::json!({"file": "none", "error": error})
    );
    assert_eq!(files[1]["adapter"]["kinds"]["lora"], 22);
}

#[test]
fn a_model_to_check_against_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let lora = demo_file("more/negative.safetensors");
    let run = overglaze(
        folder.path(),
        &["check", text(&lora), "--model", text(&lora)],
    );
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr
            .contains("is not a FLUX.1 transformer: among its"),
        "{}",
        run.stderr
    );
}

#[test]
fn numbers_out_of_range_are_told_with_the_range() {
    let folder = tempfile::tempdir().unwrap();
    let check = |line: &str, expected: &str| {
        let run = overglaze_line(folder.path(), line);
        assert_eq!(run.code, Some(2), "{line}");
        assert!(run.stderr.contains(expected), "{line}: {}", run.stderr);
    };
    check(
        "sample --seed -1",
        "-1 is not a whole number in 0..=18446744073709551615",
    );
    check("sample --steps -1", "-1 is not in 1..=1000");
    check(
        "sample --guidance -1",
        "--guidance does not apply to demo: the model has no guidance embedding",
    );
    check("sample --threads 60000", "60000 is not in 1..=");
}

#[test]
fn a_size_beyond_the_schedule_is_told_with_the_largest() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = folder.path().join("pipeline");
    fs::create_dir_all(pipeline.join("scheduler")).unwrap();
    fs::create_dir(pipeline.join("transformer")).unwrap();
    for name in ["config.json", "diffusion_pytorch_model.safetensors"] {
        let name = format!("transformer/{name}");
        fs::copy(demo_file(&name), pipeline.join(&name)).unwrap();
    }
    fs::write(
        pipeline.join("scheduler/scheduler_config.json"),
        r#"{"_class_name": "FlowMatchEulerDiscreteScheduler", "use_dynamic_shifting": true, "base_shift": 0.5,
            "max_shift": 1.15, "base_image_seq_len": 256, "max_image_seq_len": 4096}"#,
    )
    .unwrap();
    // mu = 0.5 + (tokens - 256) * 0.65 / 3840 is 20 at 115,456 tokens, a little less than 340 x 340.
    check(
        folder.path(),
        &["sample", "--model", "pipeline", "--size", "8192x16384"],
        2,
        "--size 8192x16384 is too large for the model's schedule, whose shift grows with the size; the largest square \
         is 5424x5424, or give --shift none or a number",
    );
}
