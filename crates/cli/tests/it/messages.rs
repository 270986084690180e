//! Every wrong file or path has its own clear message and exit code.

use std::{fs, path::Path};

use crate::overglaze::{Run, demo_file, files, overglaze, text, write_tensors};

/// A folder with bad files under good names.
pub(crate) fn bad_files() -> tempfile::TempDir {
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
pub(crate) fn check(folder: &Path, arguments: &[&str], code: i32, expected: &str) {
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
        let run = overglaze(folder.path(), &["check", &file]);
        assert_eq!(
            (run.code, run.stderr),
            (Some(1), format!("error: {expected}\n"))
        );
        assert_eq!(run.stdout, format!("{file}: not checked: {expected}\n"));
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
}

#[test]
fn outputs_that_cannot_be() {
    let folder = bad_files();
    let check = |arguments: &[&str], expected: &str| check(folder.path(), arguments, 2, expected);
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
        "ints.safetensors: tensor `x` has type U8, expected F32, F16 or BF16",
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
        "1000",
        "-o",
        "/proc/picture.png",
    ];
    let run = overglaze(folder.path(), &arguments);
    assert_eq!(run.code, Some(1));
    let expected = "error: `/proc/picture.png` cannot be written: ";
    assert!(run.stderr.starts_with(expected), "{}", run.stderr);
    assert!(!run.stderr.contains(".overglaze"), "{}", run.stderr);
}
