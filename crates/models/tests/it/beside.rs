//! Finding the documents of a pipeline beside the weights.

use std::{fs, path::Path};

use overglaze_models::{config_beside, scheduler_beside};
use tempfile::TempDir;

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn documents_of_a_pipeline_are_found_from_anywhere_in_it() {
    let root = TempDir::new().unwrap();
    write(
        root.path(),
        "transformer/config.json",
        r#"{"num_layers": 7}"#,
    );
    write(root.path(), "transformer/model.safetensors", "");
    write(
        root.path(),
        "scheduler/scheduler_config.json",
        r#"{"shift": 3.0}"#,
    );
    for model in ["", "transformer", "transformer/model.safetensors"] {
        let path = root.path().join(model);
        assert_eq!(
            config_beside(&path).unwrap().unwrap().num_layers,
            Some(7),
            "{model}"
        );
        assert_eq!(
            scheduler_beside(&path).unwrap().unwrap().shift,
            3.0,
            "{model}"
        );
    }
}

#[test]
fn a_lone_file_has_none() {
    let root = TempDir::new().unwrap();
    write(root.path(), "models/flux.safetensors", "");
    let path = root.path().join("models/flux.safetensors");
    assert_eq!(config_beside(&path).unwrap(), None);
    assert_eq!(scheduler_beside(&path).unwrap(), None);
    assert_eq!(config_beside(Path::new("/nowhere/at all")).unwrap(), None);
}

#[test]
fn the_document_of_another_network_is_passed_over() {
    let root = TempDir::new().unwrap();
    write(
        root.path(),
        "config.json",
        r#"{"_class_name": "AutoencoderKL"}"#,
    );
    write(root.path(), "flux.safetensors", "");
    assert_eq!(
        config_beside(&root.path().join("flux.safetensors")).unwrap(),
        None
    );
}

#[test]
fn damaged_documents_are_errors() {
    let root = TempDir::new().unwrap();
    write(root.path(), "config.json", "<html>");
    write(root.path(), "scheduler/scheduler_config.json", "");
    assert!(
        config_beside(root.path())
            .unwrap_err()
            .to_string()
            .contains("config.json is not JSON")
    );
    let message = scheduler_beside(root.path()).unwrap_err().to_string();
    assert!(
        message.contains("scheduler_config.json is not JSON"),
        "{message}"
    );
}
