//! `sweep`: its document, its table, and what it leaves out.

use std::fs;

use crate::overglaze::{demo_file, files, overglaze_line, text, write_tensors};

#[test]
fn the_document_has_the_promised_shape() {
    let folder = tempfile::tempdir().unwrap();
    let run = overglaze_line(folder.path(), "sweep --prompt boot --steps 1 --json");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let document = run.json();
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(
        keys(&document),
        [
            "base_restored",
            "loras",
            "residency",
            "sheet",
            "skipped",
            "version"
        ]
    );
    assert_eq!(document["version"], 1);
    assert_eq!(document["sheet"], "sheet.png");
    assert_eq!(document["base_restored"], true);
    let names: Vec<_> = document["loras"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lora| lora["name"].clone())
        .collect();
    assert_eq!(
        names,
        [
            "outline-epoch-1",
            "outline-epoch-2",
            "outline-epoch-4",
            "outline-epoch-10",
            "outline-epoch-20"
        ]
    );
    let lora = &document["loras"][0];
    assert_eq!(
        keys(lora),
        [
            "base_bytes_moved",
            "keys_applied",
            "keys_unmatched",
            "mount_us",
            "name",
            "seconds_per_image",
            "strength",
            "unmount_us"
        ]
    );
    assert_eq!(
        (&lora["base_bytes_moved"], &lora["keys_applied"]),
        (&0.into(), &78.into())
    );
    assert_eq!(files(folder.path()), ["sheet.png"]);
}

/// A folder of two adapters that fit, one that does not, a web page and a note.
fn mixed_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("there is room");
    let loras = folder.path().join("loras");
    let write = |name: &str, contents: Vec<u8>| {
        fs::write(loras.join(name), contents).expect("the folder is ours");
    };
    let demo = |name: &str| fs::read(demo_file(name)).expect("the demo is there");
    fs::create_dir(&loras).expect("the folder is ours");
    write("page.safetensors", b"<!DOCTYPE html><html></html>".to_vec());
    write("readme.md", Vec::new());
    write("Negative-10.safetensors", demo("more/negative.safetensors"));
    write(
        "negative-9.safetensors",
        demo("loras/outline-epoch-1.safetensors"),
    );
    let down = "transformer.blocks.0.attn.to_q.lora_A.weight";
    let up = "transformer.blocks.0.attn.to_q.lora_B.weight";
    let tensors: [(&str, &[usize], _); 2] =
        [(down, &[2, 8], vec![1.0; 16]), (up, &[8, 2], vec![1.0; 16])];
    write_tensors(&loras.join("other.safetensors"), &tensors);
    folder
}

/// The text under `key` of every entry of a list.
fn column<'a>(list: &'a serde_json::Value, key: &str) -> Vec<&'a str> {
    let entries = list.as_array().expect("it is a list").iter();
    entries
        .map(|entry| entry[key].as_str().expect("it is text"))
        .collect()
}

const MIXED: &str = "sweep --prompt bag --steps 1 --loras loras --strengths 0.5,1";

#[test]
fn what_cannot_be_swept_is_listed_and_the_sweep_goes_on() {
    let folder = mixed_folder();
    let document = overglaze_line(folder.path(), &format!("{MIXED} --json")).json();
    let names = [
        "negative-9 @0.5",
        "negative-9 @1",
        "Negative-10 @0.5",
        "Negative-10 @1",
    ];
    assert_eq!(column(&document["loras"], "name"), names);
    assert_eq!(
        column(&document["skipped"], "name"),
        ["readme.md", "other", "page"]
    );
    let reasons = column(&document["skipped"], "reason");
    assert_eq!(reasons[0], "not a .safetensors file");
    assert!(
        reasons[1].contains("none of its 2 keys could be applied"),
        "{reasons:?}"
    );
    assert!(
        reasons[2].contains("is an HTML page, not a safetensors file"),
        "{reasons:?}"
    );
}

#[test]
fn the_table_says_the_same() {
    let folder = mixed_folder();
    let run = overglaze_line(folder.path(), MIXED);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for expected in [
        "keys applied / left over",
        "78 / 0",
        "skipped: readme.md: not a .safetensors file",
        "residency: 2,330,464 bytes of weights read in place from the file, no budget",
        "base restored: identical",
    ] {
        assert!(run.stdout.contains(expected), "{expected}: {}", run.stdout);
    }
}

#[test]
fn latents_are_saved_a_tensor_a_column() {
    let folder = mixed_folder();
    let run = overglaze_line(
        folder.path(),
        &format!("{MIXED} --save-latents all.safetensors"),
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let bytes = fs::read(folder.path().join("all.safetensors")).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = &header.metadata().as_ref().unwrap()["overglaze"];
    assert_eq!(
        metadata,
        r#"{"model":"demo","seed":"0","steps":"1","strengths":"0.5,1"}"#
    );
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.len(), 5);
    for name in ["no_lora", "negative-9 @0.5", "Negative-10 @1"] {
        assert_eq!(tensors.tensor(name).unwrap().shape(), [1, 64, 16], "{name}");
    }
}

#[test]
fn one_file_is_swept_too() {
    let folder = tempfile::tempdir().unwrap();
    let lora = demo_file("more/negative.safetensors");
    let line = format!(
        "sweep --prompt bag --steps 1 --json --loras {}",
        text(&lora)
    );
    let run = overglaze_line(folder.path(), &line);
    assert_eq!(run.json()["loras"][0]["name"], "negative", "{}", run.stderr);
    assert_eq!(run.json()["loras"][0]["keys_applied"], 66);
}
