//! Every way to get it wrong has its own clear message and exit code.

use std::{fs, path::Path};

use crate::overglaze::{Run, demo_file, files, overglaze, text, write_tensors};

/// A folder with bad files under good names.
fn bad_files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("the folder is ours");
    let write = |name: &str, contents: &[u8]| {
        fs::write(folder.path().join(name), contents).expect("the folder is ours");
    };
    write("gguf.safetensors", b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0");
    write("page.safetensors", b"<!DOCTYPE html>\n<html></html>");
    write(
        "lfs.safetensors",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    );
    write("empty.safetensors", b"");
    let whole = fs::read(demo_file("more/negative.safetensors")).expect("the folder is ours");
    write("cut.safetensors", &whole[..whole.len() / 2]);
    write("words.txt", b"boot\n\nsandals\n");
    write("blank.txt", b"\n \n");
    write("no.json", b"[]");
    write("zero.json", br#"{"a.weight": [0]}"#);
    write_tensors(
        &folder.path().join("two.safetensors"),
        &[("a", &[1], vec![0.0]), ("b", &[1], vec![0.0])],
    );
    write_tensors(
        &folder.path().join("small.safetensors"),
        &[("x", &[2, 2], vec![0.0; 4])],
    );
    write_tensors(
        &folder.path().join("nan.safetensors"),
        &[("x", &[1, 64, 16], vec![f32::NAN; 1024])],
    );
    fs::create_dir(folder.path().join("nothing")).expect("the folder is ours");
    fs::create_dir(folder.path().join("notes")).expect("the folder is ours");
    fs::write(folder.path().join("notes/readme.md"), "").expect("the folder is ours");
    fs::create_dir(folder.path().join("bad")).expect("the folder is ours");
    for name in ["gguf.safetensors", "page.safetensors"] {
        fs::copy(
            folder.path().join(name),
            folder.path().join("bad").join(name),
        )
        .expect("the folder is ours");
    }
    folder
}

/// Asserts the exit code and the whole of stderr, a single sentence, with nothing on stdout.
fn check(folder: &Path, arguments: &[&str], code: i32, expected: &str) {
    let Run {
        code: found,
        stdout,
        stderr,
    } = overglaze(folder, arguments);
    assert_eq!(stderr, format!("error: {expected}\n"), "{arguments:?}");
    assert_eq!((found, stdout.as_str()), (Some(code), ""), "{arguments:?}");
}

#[test]
fn files_that_are_something_else() {
    let folder = bad_files();
    let check = |file: &str, expected: &str| {
        let file = format!("{file}.safetensors");
        let expected = format!("`{file}`{expected}");
        check(folder.path(), &["sweep", "--loras", &file], 1, &expected);
        check(
            folder.path(),
            &["sweep", "--model", &file, "--loras", "bad"],
            1,
            &expected,
        );
        check(folder.path(), &["sample", "--lora", &file], 1, &expected);
        check(folder.path(), &["inspect", &file], 1, &expected);
        check(folder.path(), &["check", &file], 1, &expected);
    };
    check(
        "gguf",
        " is a GGUF file, not a safetensors file; only safetensors files can be opened here, so convert it first",
    );
    check(
        "page",
        " is an HTML page, not a safetensors file; a server's answer was saved in its place, so fetch the file \
         itself",
    );
    check(
        "lfs",
        " is a git-LFS pointer, not a safetensors file; run `git lfs pull` in its repository to fetch the weights",
    );
    check(
        "empty",
        " is empty, not a safetensors file; the download failed, so fetch it again",
    );
}

#[test]
fn a_truncated_file() {
    let folder = bad_files();
    let run = overglaze(folder.path(), &["sweep", "--loras", "cut.safetensors"]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr
            .starts_with("error: `cut.safetensors`: the tensor `"),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr
            .ends_with("the file is truncated or damaged, so fetch it again\n"),
        "{}",
        run.stderr
    );
}

#[test]
fn paths_that_lead_nowhere() {
    let folder = bad_files();
    let check = |arguments: &[&str], expected: &str| check(folder.path(), arguments, 1, expected);
    check(
        &["sweep", "--loras", "nothin"],
        "`nothin` does not exist (did you mean `nothing`?); check the path",
    );
    check(
        &["sweep", "--model", "zzz", "--loras", "bad"],
        "`zzz` does not exist; check the path",
    );
    check(
        &["sample", "--lora", "zzz:0.5"],
        "`zzz` does not exist; check the path",
    );
    check(
        &["sweep", "--prompts", "zzz"],
        "`zzz` does not exist; check the path",
    );
    check(
        &["sweep", "--loras", "nothing"],
        "the folder `nothing` holds no adapters: expected .safetensors files or PEFT folders directly inside it, \
         but it is empty",
    );
    check(
        &["sweep", "--loras", "notes"],
        "the folder `notes` holds no adapters: expected .safetensors files or PEFT folders directly inside it, \
         found only readme.md (1 in all)",
    );
    check(
        &["sweep", "-o", "zzz/sheet.png"],
        "`zzz/sheet.png` cannot be written: its folder does not exist; make the folder first",
    );
    check(
        &["sweep", "-o", "sheet.jpg"],
        "`sheet.jpg` cannot be written: the picture is a PNG file, so let the name end in .png",
    );
    check(
        &["sweep", "--save-latents", "l.bin"],
        "`l.bin` cannot be written: latents are a safetensors file, so let the name end in .safetensors",
    );
}

#[test]
fn adapters_for_another_model() {
    let folder = bad_files();
    let key = |end: &str| format!("transformer.blocks.7.to_q.lora_{end}.weight");
    write_tensors(
        &folder.path().join("other.safetensors"),
        &[
            (&key("A"), &[1, 2], vec![1.0; 2]),
            (&key("B"), &[2, 1], vec![1.0; 2]),
        ],
    );
    let reason = "none of its 2 keys could be applied; the first: `blocks.7.to_q`: the model has no layer of this name";
    for arguments in [
        ["sweep", "--loras", "other.safetensors"],
        ["sample", "--lora", "other.safetensors"],
    ] {
        let run = overglaze(folder.path(), &arguments);
        assert_eq!(run.code, Some(3), "{}", run.stderr);
        assert!(run.stderr.contains(reason), "{}", run.stderr);
    }
    check(
        folder.path(),
        &["sweep", "--loras", "bad"],
        1,
        "none of the 2 LoRAs can be read; the first, `gguf`: `bad/gguf.safetensors` is a GGUF file, not a \
         safetensors file; only safetensors files can be opened here, so convert it first",
    );
    fs::copy(
        folder.path().join("other.safetensors"),
        folder.path().join("bad/other.safetensors"),
    )
    .unwrap();
    let run = overglaze(folder.path(), &["sweep", "--loras", "bad"]);
    assert_eq!(run.code, Some(3));
    assert!(
        run.stderr
            .starts_with("error: none of the 3 LoRAs fits the model; the first, `gguf`: ")
    );
    assert!(
        !files(folder.path())
            .iter()
            .any(|name| name.ends_with(".png")),
        "no sheet"
    );
}

#[test]
fn a_file_that_is_no_flux_model() {
    let folder = bad_files();
    let run = overglaze(
        folder.path(),
        &["sweep", "--model", "two.safetensors", "--loras", "bad"],
    );
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr
            .starts_with("error: two.safetensors is not a FLUX.1 transformer: among its 2 tensors")
    );
}

#[test]
fn prompts_the_demo_does_not_know() {
    let folder = bad_files();
    let known =
        "it knows: t-shirt, trousers, pullover, dress, coat, sandal, shirt, sneaker, bag, boot";
    let check =
        |arguments: &[&str], code, expected: &str| check(folder.path(), arguments, code, expected);
    check(
        &["sweep", "--prompt", "bot"],
        2,
        &format!("the demo does not know the prompt word `bot` (did you mean `boot`?); {known}"),
    );
    check(
        &["sweep", "--prompts", "words.txt"],
        2,
        &format!(
            "the demo does not know the prompt word `sandals` (did you mean `sandal`?); {known}"
        ),
    );
    check(
        &["sweep", "--prompts", "blank.txt"],
        1,
        "`blank.txt` holds no prompts; expected one a line",
    );
}

#[test]
fn settings_that_do_not_apply_or_do_not_fit() {
    let folder = bad_files();
    let check =
        |arguments: &[&str], code, expected: &str| check(folder.path(), arguments, code, expected);
    check(
        &["sweep", "--size", "64x64"],
        2,
        "--size does not apply to demo: its images are always 28 x 28 pixels, so leave it out",
    );
    check(
        &["sweep", "--noise", "two.safetensors"],
        1,
        "`two.safetensors` has no tensor `in.noise`; expected that tensor, or exactly one tensor of any name, \
         [prompts, tokens, channels]",
    );
    check(
        &["sweep", "--noise", "small.safetensors"],
        1,
        "`small.safetensors`: tensor `x` has shape [2, 2], expected [10, 64, 16] (prompts, tokens, channels)",
    );
    check(
        &["sweep", "--prompt", "bag", "--noise", "nan.safetensors"],
        1,
        "`nan.safetensors`: tensor `x` holds NaN, expected finite numbers",
    );
    check(
        &["sweep", "--conditioning", "two.safetensors"],
        1,
        "`two.safetensors` has no tensor `encoder_hidden_states`; expected what the text encoder says, [prompts, \
         tokens, width]",
    );
    let model = demo_file("transformer");
    check(
        &["sweep", "--device-budget", "1KB"],
        1,
        "the layer `time_text_embed.timestep_embedder.linear_1` alone needs 49344 bytes, more than the budget of \
         1000; raise the budget to at least 49344 bytes",
    );
    check(
        &[
            "check",
            text(&model.join("none")),
            "--model-keys",
            "no.json",
        ],
        1,
        "`no.json` is not a JSON object from key to shape, such as {\"x_embedder.weight\": [3072, 64]}: invalid \
         type: sequence, expected a map at line 1 column 0",
    );
    check(
        &["check", "gguf.safetensors", "--model-keys", "zero.json"],
        1,
        "`zero.json`: key `a.weight` has shape [0], expected one to eight sizes above 0",
    );
}

#[test]
fn usage_errors_suggest_the_nearest() {
    let folder = bad_files();
    let check = |arguments: &[&str], expected: &str| {
        let run = overglaze(folder.path(), arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}");
        assert!(
            run.stderr.contains(expected),
            "{arguments:?}: {}",
            run.stderr
        );
    };
    check(&["sweeep"], "a similar subcommand exists: 'sweep'");
    check(
        &["sweep", "--lora", "x"],
        "a similar argument exists: '--loras'",
    );
    check(
        &["sweep", "--device", "cudda"],
        "no such device (did you mean `cuda`?); expected auto, cpu, flex",
    );
    check(
        &["sweep", "--device-budget", "lots"],
        "expected bytes (3_000_000), a size (6GiB, 800MB) or a percentage",
    );
    check(&["sweep", "--steps", "0"], "0 is not in 1..=1000");
    check(
        &["sweep", "--strengths", "0.5,x"],
        "expected a finite number",
    );
    check(
        &["sweep", "--size", "100x64", "--model", "m"],
        "expected WIDTHxHEIGHT in pixels, multiples of 16",
    );
    check(
        &["sweep", "--prompt", "a", "--conditioning", "c"],
        "cannot be used with",
    );
    check(&[], "Usage: overglaze");
}

#[test]
fn tensors_that_no_model_can_use() {
    let folder = bad_files();
    let path = folder.path().join("ints.safetensors");
    let view =
        safetensors::tensor::TensorView::new(safetensors::Dtype::U8, vec![1, 64, 16], &[0; 1024]);
    fs::write(
        path,
        safetensors::serialize([("x", view.unwrap())], None).unwrap(),
    )
    .unwrap();
    check(
        folder.path(),
        &["sweep", "--prompt", "bag", "--noise", "ints.safetensors"],
        1,
        "`ints.safetensors`: tensor `x` has type U8, expected F32, F16 or BF16",
    );
    write_tensors(
        &folder.path().join("wide.safetensors"),
        &[
            ("encoder_hidden_states", &[1, 1, 65], vec![0.0; 65]),
            ("pooled_projections", &[1, 64], vec![0.0; 64]),
        ],
    );
    check(
        folder.path(),
        &["sweep", "--conditioning", "wide.safetensors"],
        1,
        "`wide.safetensors`: tensor `encoder_hidden_states` has shape [1, 1, 65], expected what the text encoder \
         says, [prompts, tokens, width], and the model's width is 64",
    );
}

#[test]
fn a_model_without_loras() {
    let folder = bad_files();
    let model = demo_file("transformer");
    write_tensors(
        &folder.path().join("c.safetensors"),
        &[
            ("encoder_hidden_states", &[1, 1, 64], vec![0.0; 64]),
            ("pooled_projections", &[1, 64], vec![0.0; 64]),
        ],
    );
    check(
        folder.path(),
        &[
            "sweep",
            "--model",
            text(&model),
            "--conditioning",
            "c.safetensors",
            "--size",
            "32x32",
        ],
        2,
        "--model needs --loras DIR: the embedded LoRAs fit the embedded demo only",
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_place_where_nothing_can_be_written() {
    let folder = bad_files();
    let arguments = [
        "sample",
        "--prompt",
        "bag",
        "--steps",
        "1",
        "-o",
        "/proc/picture.png",
    ];
    let run = overglaze(folder.path(), &arguments);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr
            .starts_with("error: `/proc/picture.png` cannot be written: "),
        "{}",
        run.stderr
    );
}
