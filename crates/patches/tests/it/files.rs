//! Reading files and PEFT folders, whole and damaged.

use std::{collections::HashMap, error::Error, fs, path::PathBuf};

use overglaze_patches::{PatchSet, files::is_peft_folder, stored_tensor};
use safetensors::{Dtype, serialize, tensor::TensorView};
use tempfile::TempDir;

use crate::fixtures::{assert_close, delta, device, matrix, message, wave};

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("the folder is writable");
    path
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

/// A pair of rank 4 for a layer `[6, 5]`, with `metadata`.
fn adapter(metadata: &[(&str, &str)]) -> Vec<u8> {
    let (down, up) = (wave(&[4, 5], 2), wave(&[6, 4], 1));
    let view = |shape: &[usize], bytes| TensorView::new(Dtype::F32, shape.to_vec(), bytes);
    let tensors = [
        (
            "transformer.a.lora_A.weight",
            view(&[4, 5], down.as_bytes()).expect("a view"),
        ),
        (
            "transformer.a.lora_B.weight",
            view(&[6, 4], up.as_bytes()).expect("a view"),
        ),
    ];
    let metadata: HashMap<_, _> = metadata
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect();
    serialize(tensors, Some(metadata)).expect("a file")
}

fn check_scale(set: &PatchSet, scale: f32) {
    let product = matrix(wave(&[6, 4], 1)).matmul(matrix(wave(&[4, 5], 2)));
    let patch = set.entries[0].patch.as_ref();
    // Sums of 4 products of numbers below 1, in f32.
    assert_close(delta(patch, [6, 5]), product.mul_scalar(scale), 1e-6);
}

#[test]
fn a_file_is_named_after_itself_and_configured_by_its_metadata() {
    let folder = folder();
    let path = write(&folder, "style-2.safetensors", &adapter(&[]));
    let set = PatchSet::load(&path, &device()).expect("an adapter");
    assert_eq!(set.name, "style-2");
    check_scale(&set, 1.0);
    let json = r#"{"transformer.lora_alpha": 2}"#;
    let bytes = adapter(&[("lora_adapter_metadata", json), ("ss_network_alpha", "8")]);
    let path = write(&folder, "style-3.safetensors", &bytes);
    check_scale(&PatchSet::load(&path, &device()).expect("an adapter"), 0.5);
}

#[test]
fn content_in_memory_is_read_alike() {
    let content = adapter(&[("lora_adapter_metadata", r#"{"transformer.lora_alpha": 2}"#)]);
    let set = PatchSet::from_bytes("style", &content.into(), &device()).expect("an adapter");
    assert_eq!(set.name, "style");
    check_scale(&set, 0.5);
    let expected =
        "`style` is a GGUF file, expected a safetensors file; convert it to safetensors first";
    assert_eq!(
        message(PatchSet::from_bytes(
            "style",
            &b"GGUF"[..].into(),
            &device()
        )),
        expected
    );
}

#[test]
fn a_folder_is_configured_by_its_json() {
    let parent = folder();
    let path = parent.path().join("my.lora.v1");
    fs::create_dir(&path).expect("the folder is writable");
    let lacks = |missing: &str| {
        format!(
            "the folder `{}` holds no `{missing}`; an adapter folder holds adapter_config.json and \
             adapter_model.safetensors",
            path.display()
        )
    };
    let load = || PatchSet::load(&path, &device());
    assert_eq!(message(load()), lacks("adapter_config.json"));
    let write = |name: &str, bytes: &[u8]| fs::write(path.join(name), bytes).expect("writable");
    write(
        "adapter_config.json",
        br#"{"peft_type": "LORA", "lora_alpha": 12, "r": 4}"#,
    );
    assert_eq!(message(load()), lacks("adapter_model.safetensors"));
    assert!(!is_peft_folder(&path));
    write("adapter_model.safetensors", &adapter(&[]));
    assert!(is_peft_folder(&path));
    let set = load().expect("an adapter");
    check_scale(&set, 3.0);
    assert_eq!(set.name, "my.lora.v1");
    let file = path.join("adapter_model.safetensors");
    assert!(!is_peft_folder(&file));
    let set = PatchSet::load(&file, &device()).expect("an adapter");
    check_scale(&set, 3.0);
    assert_eq!(set.name, "adapter_model");
}

#[test]
fn a_damaged_configuration_names_its_file() {
    let folder = folder();
    write(&folder, "adapter_model.safetensors", &adapter(&[]));
    let config = folder
        .path()
        .join("adapter_config.json")
        .display()
        .to_string();
    let too_long = vec![b' '; (1 << 20) + 1];
    for (text, why) in [
        (&b"{"[..], "is not the JSON object that PEFT writes"),
        (
            br#"{"layer_replication": [[0, 4]]}"#,
            "has layer_replication",
        ),
        (&too_long, "has more than 1048576 bytes"),
    ] {
        write(&folder, "adapter_config.json", text);
        let found = message(PatchSet::load(folder.path(), &device()));
        let expected = format!("the adapter configuration in `{config}` {why}");
        assert!(found.starts_with(&expected), "{found}");
    }
    let path = write(
        &folder,
        "style.safetensors",
        &adapter(&[("lora_adapter_metadata", "{")]),
    );
    let found = message(PatchSet::load(&path, &device()));
    let expected = format!("the adapter configuration in `{}` is not", path.display());
    assert!(found.starts_with(&expected), "{found}");
}

#[test]
fn bytes_that_do_not_fill_the_shape_are_refused() {
    let read =
        |shape: &[usize]| stored_tensor("f".as_ref(), "t", "BF16", shape, vec![0_u8; 6].into());
    assert_eq!(read(&[3, 1]).expect("3 numbers").shape().to_vec(), [3, 1]);
    for shape in [&[4][..], &[1 << 40, 1 << 40, 0]] {
        let expected = format!(
            "`f`: tensor `t` of dtype BF16 and shape {shape:?} has 6 bytes, which is not what the shape needs; \
             download the file again"
        );
        assert_eq!(message(read(shape)), expected);
    }
}

#[test]
fn tensors_that_lie_unaligned_are_copied() {
    let folder = folder();
    let header = br#"{"lora_unet_a.lora_down.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"lora_unet_a.lora_up.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]}}"#;
    for padding in 0..4 {
        let length = (header.len() + padding) as u64;
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.extend(vec![b' '; padding]);
        bytes.extend(
            [3.0_f32, -2.0, 5.0]
                .iter()
                .flat_map(|value| value.to_le_bytes()),
        );
        let path = write(&folder, "unaligned.safetensors", &bytes);
        let set = PatchSet::load(&path, &device()).expect("an adapter");
        let found = delta(set.entries[0].patch.as_ref(), [1, 2]);
        let values: Vec<f32> = found.into_data().iter().collect();
        assert_eq!(values, [15.0, -10.0]);
    }
}

#[test]
fn files_that_are_something_else_are_named() {
    let folder = folder();
    for (bytes, found, remedy) in [
        (&b""[..], "an empty file", "download it again"),
        (b"GGUF\x03\0\0\0\0\0\0\0", "a GGUF file", CONVERT),
        (
            b"PK\x03\x04rest",
            "a zip archive, as PyTorch checkpoints are",
            CONVERT,
        ),
        (b"\x80\x02}q\x00X\x05\x00\x00", "a Python pickle", CONVERT),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "a git-LFS pointer",
            "run `git lfs pull` in its repository",
        ),
        (
            b"\n<!DOCTYPE html><html>",
            "an HTML page",
            "download it again",
        ),
        (b"<HTML>", "an HTML page", "download it again"),
    ] {
        let path = write(&folder, "wrong.safetensors", bytes);
        let expected = format!(
            "`{}` is {found}, expected a safetensors file; {remedy}",
            path.display()
        );
        assert_eq!(message(PatchSet::load(&path, &device())), expected);
    }
}

#[test]
fn damaged_files_are_refused() {
    let folder = folder();
    let whole = adapter(&[]);
    let with_header = |header: &str| {
        [
            &(header.len() as u64).to_le_bytes()[..],
            header.as_bytes(),
            &[0; 8],
        ]
        .concat()
    };
    for bytes in [
        whole[..whole.len() - 1].to_vec(),
        whole[..20].to_vec(),
        [whole.as_slice(), &[0]].concat(),
        b"abc".to_vec(),
        i64::MAX.to_le_bytes().to_vec(),
        with_header("[]"),
        with_header(r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#),
        with_header(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,-8]}}"#),
    ] {
        let path = write(&folder, "damaged.safetensors", &bytes);
        let error = PatchSet::load(&path, &device()).expect_err("it is damaged");
        let expected = format!(
            "`{}` is not a complete safetensors file; download it again",
            path.display()
        );
        assert_eq!(error.to_string(), expected);
        assert!(error.source().is_some());
    }
}

#[test]
fn a_tensor_named_twice_is_refused() {
    let folder = folder();
    let entry = r#""a.alpha":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;
    let header = format!("{{{entry},{entry}}}");
    let bytes = [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &[0; 8],
    ]
    .concat();
    let path = write(&folder, "twice.safetensors", &bytes);
    let expected = format!(
        "`{}` names the tensor `a.alpha` twice in its header, expected once; save the file again",
        path.display()
    );
    assert_eq!(message(PatchSet::load(&path, &device())), expected);
}

#[test]
fn an_unknown_dtype_is_refused() {
    let folder = folder();
    let view = TensorView::new(Dtype::F8_E4M3, vec![2], &[0; 2]).expect("a view");
    let bytes = serialize([("lora_unet_a.lora_down.weight", view)], None).expect("a file");
    let path = write(&folder, "eight.safetensors", &bytes);
    let expected = format!(
        "`{}`: tensor `lora_unet_a.lora_down.weight` has dtype F8_E4M3, expected a float dtype \
         of 16 to 64 bits or an integer dtype; save the adapter in one of them",
        path.display()
    );
    assert_eq!(message(PatchSet::load(&path, &device())), expected);
}

#[test]
fn a_missing_file_is_an_error() {
    let folder = folder();
    let path = folder.path().join("none.safetensors");
    let error = PatchSet::load(&path, &device()).expect_err("it is not there");
    assert_eq!(
        error.to_string(),
        format!(
            "`{}` cannot be read; check that it is there and a readable file",
            path.display()
        )
    );
    assert!(error.source().is_some());
}

#[test]
fn a_file_with_only_metadata_holds_no_adapter() {
    let folder = folder();
    let header = br#"{"__metadata__":{"format":"pt"}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header].concat();
    let path = write(&folder, "bare.safetensors", &bytes);
    let found = message(PatchSet::load(&path, &device()));
    assert!(
        found.starts_with("`bare` holds no adapter tensors: none of its 0 keys"),
        "{found}"
    );
}

const CONVERT: &str = "convert it to safetensors first";

/// As an incomplete cache leaves it: without its configuration, the adapter would have another scale.
#[test]
#[cfg(unix)]
fn a_configuration_that_is_no_file_is_not_taken_for_none() {
    let folder = folder();
    let weights = write(&folder, "adapter_model.safetensors", &adapter(&[]));
    let config = folder.path().join("adapter_config.json");
    let expected = format!(
        "`{}` cannot be read; check that it is there and a readable file",
        config.display()
    );
    let check = || {
        for path in [weights.as_path(), folder.path()] {
            assert_eq!(message(PatchSet::load(path, &device())), expected);
        }
    };
    std::os::unix::fs::symlink("nowhere", &config).expect("a link");
    check();
    fs::remove_file(&config).expect("the link");
    fs::create_dir(&config).expect("a folder");
    check();
}
