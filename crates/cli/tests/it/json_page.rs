//! docs/json.md names every field of every `--json` document.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::overglaze::{demo_file, overglaze_line, text};

#[test]
fn every_field_is_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    let lora = demo_file("more/negative.safetensors");
    let (lora, brief) = (text(&lora), "--prompt bag --steps 1");
    for line in [
        format!("sweep --loras {lora} {brief} --save-latents l.safetensors"),
        format!("sample --lora {lora} {brief}"),
        format!("check {lora}"),
        format!("merge --lora {lora} -o m.safetensors"),
        format!("inspect {lora} --compare {lora}"),
        "registry".into(),
    ] {
        let (command, _) = line.split_once(' ').unwrap_or((&line, ""));
        let run = overglaze_line(folder.path(), &format!("{line} --json"));
        let mut fields = BTreeSet::new();
        collect(&run.json(), &mut fields);
        assert!(fields.len() > 5, "{line}: {}", run.stdout);
        let missing = |field: &&String| !page.contains(&format!("`{field}`"));
        let missing: Vec<_> = fields.iter().filter(missing).collect();
        assert!(missing.is_empty(), "{missing:?} of {command}");
        assert!(page.contains(&format!("\n## {command}\n")), "{command}");
    }
}

/// Names of the fields of every object but those whose keys are data.
fn collect(value: &Value, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (field, value) in object {
                fields.insert(field.clone());
                let is_data = value.is_object() && BY_NAME.contains(&field.as_str());
                if !is_data {
                    collect(value, fields);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, fields)),
        _ => {}
    }
}

/// Objects from a name to something.
const BY_NAME: [&str; 8] = [
    "config", "dialects", "kinds", "latents", "metadata", "refused", "tensors", "types",
];
