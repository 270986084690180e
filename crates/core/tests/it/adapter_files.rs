//! Adapters as they lie on disk: a file, or a PEFT folder with its configuration.

use std::{fs, path::Path};

use bytes::Bytes;
use overglaze_core::{
    Error,
    adapter_file::{from_source, is_peft_folder, load},
    mount,
};
use overglaze_patches::{BaseLayer, LayerShape, PatchSet};
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
    let shape = LayerShape::linear(SHAPE[0], SHAPE[1]);
    let base = BaseLayer::of_shape(&shape);
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

/// The leaf and this crate open files each in their own way; names, scales and refusals are the same.
#[test]
fn the_leaf_reads_alike() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let peft = folder.path().join("my.lora.v1");
    fs::create_dir(&peft).expect("the folder is writable");
    write(&peft, "adapter_model.safetensors", &safetensors());
    let alike = |path: &Path| {
        let (core, leaf) = (load(path, &flex()), PatchSet::load(path, &flex()));
        match (core, leaf) {
            (Ok(core), Ok(leaf)) => {
                assert_eq!(core.name, leaf.name);
                let scale = |set: &PatchSet| {
                    let shape = LayerShape::linear(SHAPE[0], SHAPE[1]);
                    let base = BaseLayer::of_shape(&shape);
                    let delta = set.entries[0].patch.delta_weight(&base);
                    let delta = delta.expect("no values are needed").expect("a residual");
                    delta.into_data().try_to_vec::<f32>().expect("f32")
                };
                assert_eq!(scale(&core), scale(&leaf));
                core.name
            }
            (core, leaf) => {
                let (core, leaf) = (message(core), message(leaf.map_err(Error::from)));
                assert_eq!(core, leaf);
                core
            }
        }
    };
    assert!(alike(&peft).contains("holds no `adapter_config.json`"));
    write(&peft, "adapter_config.json", b"{");
    assert!(alike(&peft).contains("adapter_config.json` is not the JSON"));
    write(&peft, "adapter_config.json", br#"{"lora_alpha": 8}"#);
    assert_eq!(alike(&peft), "my.lora.v1");
    assert_eq!(
        alike(&peft.join("adapter_model.safetensors")),
        "adapter_model"
    );
    write(folder.path(), "a.b.safetensors", &safetensors());
    assert_eq!(alike(&folder.path().join("a.b.safetensors")), "a.b");
}

#[test]
fn small_integers_and_booleans_are_read() {
    for (tag, width) in [("U16", 2), ("U32", 4), ("U64", 8), ("BOOL", 1)] {
        let one = Bytes::from([&[1_u8][..], &[0; 7]].concat()).slice(..width);
        let mut source = MemorySource::new("small");
        for (key, shape, seed) in [(KEYS[0], [2, 8], 21), (KEYS[1], [6, 2], 20)] {
            let bytes = Bytes::from(wave(&shape, seed).as_bytes().to_vec());
            source.insert(key, "F32", shape, bytes).expect("the size");
        }
        source
            .insert("transformer.fc.alpha", tag, Vec::new(), one)
            .expect("the size is right");
        let set = from_source("small", &source, None, &flex()).expect("it is an adapter");
        assert_eq!(
            (set.entries.len(), set.entries[0].keys.len()),
            (1, 3),
            "{tag}"
        );
    }
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
    for (name, missing) in [
        ("empty", "adapter_config.json"),
        ("half", "adapter_model.safetensors"),
    ] {
        let expected = format!(
            "the folder `{}` holds no `{missing}`; an adapter folder holds adapter_config.json and \
             adapter_model.safetensors",
            path(name).display()
        );
        assert_eq!(message(load(&path(name), &flex())), expected);
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
    let expected = "`fp8.safetensors`: tensor `transformer.fc.lora_A.weight` has dtype F8_E4M3, expected a float \
                    dtype of 16 to 64 bits or an integer dtype; save the adapter in one of them";
    assert_eq!(
        message(from_source("fp8", &source, None, &flex())),
        expected
    );
}
