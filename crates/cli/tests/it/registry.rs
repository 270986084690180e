//! `registry` and `completions`.

use std::path::Path;

use crate::overglaze::overglaze;

#[test]
fn what_is_compiled_in_is_listed() {
    let run = overglaze(Path::new("."), &["registry", "--json"]);
    let document = run.json();
    assert_eq!(document["version"], 1);
    let has = |list: &str, name: &str| {
        let entries = document[list].as_array().unwrap();
        entries
            .iter()
            .any(|entry| *entry == *name || entry["name"] == *name)
    };
    assert!(has("kinds", "lora") && has("formats", "q8_0"));
    assert!(has("devices", overglaze_cli::device::compiled()[0]));
    assert!(document["dialects"].as_array().unwrap().len() >= 2);
    let text = overglaze(Path::new("."), &["registry"]).stdout;
    assert!(text.contains("lora") && text.contains("q8_0") && text.contains("│ devices "));
}

#[test]
fn every_kind_is_documented() {
    let document = overglaze(Path::new("."), &["registry", "--json"]).json();
    let kinds = document["kinds"].as_array().unwrap();
    assert!(kinds.len() >= 8, "{}", kinds.len());
    for kind in kinds {
        for field in ["formula", "layers", "strength", "source"] {
            let text = kind[field].as_str().unwrap();
            assert!(!text.is_empty(), "{}: no {field}", kind["name"]);
        }
        assert!(!kind["signatures"][0].as_array().unwrap().is_empty());
    }
}

#[test]
fn the_page_on_the_kinds_is_the_registrys() {
    let page = overglaze(Path::new("."), &["registry", "--markdown"]).stdout;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kinds.md");
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(
        page == committed,
        "run `cargo run -p overglaze-cli -- registry --markdown > docs/kinds.md`"
    );
    assert!(page.contains("\n## lora\n\n- keys: `lora_"), "{page}");
}

#[test]
fn the_table_fits_a_narrow_terminal() {
    let text = overglaze(Path::new("."), &["registry"]).stdout;
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{text}");
}

#[test]
fn shells_get_their_scripts() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = overglaze(Path::new("."), &["completions", shell]);
        assert_eq!(run.code, Some(0));
        assert!(run.stdout.contains("device-budget"), "{shell}");
    }
}

#[test]
fn every_command_has_help_with_examples() {
    for command in [
        "sweep",
        "sample",
        "inspect",
        "check",
        "merge",
        "registry",
        "completions",
    ] {
        let run = overglaze(Path::new("."), &[command, "--help"]);
        assert_eq!(run.code, Some(0));
        assert!(run.stdout.contains("Examples:\n  overglaze "), "{command}");
    }
    let help = overglaze(Path::new("."), &["--help"]).stdout;
    assert!(help.contains("Exit codes: 0 done, 1 failed, 2 usage, 3 the adapter does not fit"));
}
