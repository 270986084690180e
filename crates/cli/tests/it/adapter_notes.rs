//! What the reader of an adapter's configuration has to say is told by every command, and is in every document.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::overglaze::{overglaze_line, write_tensors};

/// A PEFT folder `peft` for the demo, with a pattern that matches no layer.
fn write_adapter(folder: &Path) {
    let peft = folder.join("peft");
    fs::create_dir(&peft).unwrap();
    let config =
        json!({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "alpha_pattern": {"nowhere": 4}});
    fs::write(peft.join("adapter_config.json"), config.to_string()).unwrap();
    let key = |factor: &str| format!("base_model.model.proj_out.lora_{factor}.weight");
    write_tensors(
        &peft.join("adapter_model.safetensors"),
        &[
            (&key("A"), &[2, 96], vec![0.1; 192]),
            (&key("B"), &[16, 2], vec![0.1; 32]),
        ],
    );
}

#[test]
fn every_command_passes_notes_on() {
    let folder = tempfile::tempdir().unwrap();
    write_adapter(folder.path());
    let note =
        "`nowhere` in alpha_pattern of the adapter configuration matches no layer of the file";
    let check = |line: &str, shown: &str, place: &str| {
        let run = overglaze_line(folder.path(), line);
        assert_eq!(run.code, Some(0), "{line}: {}", run.stderr);
        let (told, shown) = (run.stdout + &run.stderr, format!("{shown}{note}\n"));
        assert_eq!(told.matches(&shown).count(), 1, "{line}: {told}");
        let run = overglaze_line(folder.path(), &format!("{line} --json --quiet"));
        let document = run.json();
        let notes = document.pointer(place).and_then(|entry| entry.get("notes"));
        let notes = notes.and_then(Value::as_array).cloned();
        assert_eq!(notes, Some(vec![note.into()]), "{line}: {}", run.stdout);
    };
    check("check peft", "  note           ", "/adapters/0");
    check("inspect peft", "  note: ", "/files/0/adapter");
    check(
        "merge --lora peft -o m.safetensors",
        "  note           ",
        "/loras/0",
    );
    let told = "note: `peft`: ";
    check(
        "sweep --loras peft --prompt bag --steps 1 --strengths 0.5,1",
        told,
        "/loras/1",
    );
    check(
        "sample --lora peft --prompt bag --steps 1",
        told,
        "/loras/0",
    );
}
