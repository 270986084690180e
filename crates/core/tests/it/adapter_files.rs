//! Adapters as they lie on disk: a file, or a PEFT folder with its configuration.

use std::{fs, path::Path};

use bytes::Bytes;
use overglaze_core::{
    adapter_file::{from_source, is_peft_folder, load},
    mount,
};
use overglaze_patches::{BaseLayer, PatchSet};
use overglaze_stream::MemorySource;

use crate::{
    numbers::{assert_close, flex, message, plain, wave},
    toy::resident,
};

const SHAPE: [usize; 2] = [6, 8];
const KEYS: [&str; 2] = [
    "transformer.fc.lora_A.weight",
    "transformer.fc.lora_B.weight",
];

/// A safetensors file of one low-rank pair of rank 2.
fn safetensors() -> Vec<u8> {
    let (down, up) = (wave(&[2, 8], 21), wave(&[6, 2], 20));
    let header = format!(
        r#"{{"{}":{{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]}},"{}":{{"dtype":"F32","shape":[6,2],"data_offsets":[64,112]}}}}"#,
        KEYS[0], KEYS[1]
    );
    let length = (header.len() as u64).to_le_bytes();
    [
        length.as_slice(),
        header.as_bytes(),
        down.as_bytes(),
        up.as_bytes(),
    ]
    .concat()
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    fs::write(folder.join(name), bytes).expect("the folder is writable");
}

fn check(set: &PatchSet, name: &str, scale: f32) {
    assert_eq!(
        (set.name.as_str(), set.num_keys(), set.entries.len()),
        (name, 2, 1)
    );
    let base = BaseLayer {
        shape: SHAPE,
        weight: None,
    };
    let delta = set.entries[0]
        .patch
        .delta_weight(&base)
        .expect("no values are needed");
    let expected = plain([6, 2], 20)
        .matmul(plain([2, 8], 21))
        .mul_scalar(scale);
    assert_close(
        name,
        &delta.expect("it changes the weight"),
        &expected,
        1e-5,
    );
    let mut toy = resident(&[("fc", "F32", SHAPE)]);
    let report = mount(&mut toy, name, set, 1.0).expect("it fits");
    assert_eq!((report.keys_applied(), report.keys_unmatched()), (2, 0));
}

#[test]
fn a_file_and_a_folder_are_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "style.v2.safetensors", &safetensors());
    let file = folder.path().join("style.v2.safetensors");
    check(
        &load(&file, &flex()).expect("it is an adapter"),
        "style.v2",
        1.0,
    );
    assert!(!is_peft_folder(folder.path()));
    let peft = folder.path().join("peft.folder");
    fs::create_dir(&peft).expect("the folder is writable");
    write(&peft, "adapter_model.safetensors", &safetensors());
    assert!(!is_peft_folder(&peft));
    let config = br#"{"peft_type": "LORA", "r": 2, "lora_alpha": 8}"#;
    write(&peft, "adapter_config.json", config);
    assert!(is_peft_folder(&peft));
    check(
        &load(&peft, &flex()).expect("it is an adapter"),
        "peft.folder",
        4.0,
    );
}

#[test]
fn bytes_at_odd_addresses_are_copied() {
    let mut source = MemorySource::new("odd");
    let tensors = [(KEYS[0], [2, 8], 21), (KEYS[1], [6, 2], 20)];
    for (key, shape, seed) in tensors {
        let padded = [&[0], wave(&shape, seed).as_bytes()].concat();
        let bytes = Bytes::from(padded).slice(1..);
        source
            .insert(key, "F32", shape, bytes)
            .expect("the size is right");
    }
    check(
        &from_source("odd", &source, None, &flex()).expect("it is an adapter"),
        "odd",
        1.0,
    );
}

#[test]
fn what_is_no_adapter_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("empty")).expect("the folder is writable");
    fs::create_dir(path("half")).expect("the folder is writable");
    write(&path("half"), "adapter_config.json", b"{}");
    write(
        folder.path(),
        "page.safetensors",
        b"<!DOCTYPE html><html></html>",
    );
    let cases = [
        (
            "empty",
            "a folder is an adapter when it holds adapter_config.json; reading that: ",
        ),
        (
            "half",
            "it holds adapter_config.json but no adapter_model.safetensors",
        ),
    ];
    for (name, why) in cases {
        let found = message(load(&path(name), &flex()));
        let expected = format!("{}: {why}", path(name).display());
        assert!(found.starts_with(&expected), "{found}");
    }
    let page = message(load(&path("page.safetensors"), &flex()));
    assert!(
        page.contains("page.safetensors") && page.contains("HTML"),
        "{page}"
    );
    let missing = message(load(&path("nowhere"), &flex()));
    let expected = format!(
        "`{}` does not exist; check the path",
        path("nowhere").display()
    );
    assert_eq!(missing, expected);
}

#[test]
fn a_dtype_adapters_do_not_use_is_refused() {
    let mut source = MemorySource::new("fp8.safetensors");
    let bytes = Bytes::from(vec![0; 16]);
    source
        .insert(KEYS[0], "F8_E4M3", vec![2, 8], bytes)
        .expect("the size is right");
    let expected = "fp8.safetensors: tensor `transformer.fc.lora_A.weight` has dtype F8_E4M3, which \
                    adapters do not use";
    assert_eq!(
        message(from_source("fp8", &source, None, &flex())),
        expected
    );
}
