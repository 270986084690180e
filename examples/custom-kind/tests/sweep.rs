//! The kind registers itself, and every command of the linked CLI knows it.

use std::{fs, path::Path, process::Command};

use safetensors::{Dtype, serialize_to_file, tensor::TensorView};
use serde_json::Value;

fn output(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_example-custom-kind"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the example runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("stdout is text")
}

#[test]
fn the_kind_is_registered() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listed = output(folder.path(), &["registry"]);
    assert!(listed.contains("scaled-identity"), "{listed}");
    assert!(listed.contains("lora"), "{listed}");
}

#[test]
fn the_page_on_the_kinds_has_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = output(folder.path(), &["registry", "--markdown"]);
    let section = "\n## scaled-identity\n\n- keys: `identity_gain`\n- formula: ΔW = gain · I\n- layers: square linear\n\
                   - strength: proportional\n- source: this example\n";
    assert!(page.contains(section), "{page}");
}

#[test]
fn a_sweep_mounts_the_kind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let loras = folder.path().join("loras");
    fs::create_dir(&loras).expect("a new folder");
    let gain = 0.5_f32.to_le_bytes();
    let key = "transformer.transformer_blocks.0.attn.to_q.identity_gain";
    let view = TensorView::new(Dtype::F32, vec![1], &gain).expect("four bytes are one f32");
    serialize_to_file([(key, view)], None, &loras.join("gain.safetensors")).expect("a new file");
    let arguments = ["sweep", "--loras", "loras", "--steps", "1", "--json"];
    let document: Value = serde_json::from_str(&output(folder.path(), &arguments)).expect("JSON");
    assert_eq!(document["loras"][0]["name"], "gain");
    assert_eq!(document["loras"][0]["keys_applied"], 1);
    assert_eq!(document["loras"][0]["base_bytes_moved"], 0);
    assert_eq!(document["base_restored"], true);
}
