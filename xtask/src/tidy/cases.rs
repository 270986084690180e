//! Every registered kind and format has a golden case: a file under `cases/` whose path holds its name as a
//! whole word (`patches/linear_lora_….safetensors`, `quant_gguf/Q8_0.safetensors`). That every dialect has
//! keys in the table of spellings, a test of `crates/patches` checks.

use super::{Finding, TreeFile, names::REGISTRIES};

/// Checks every entry of every registry.
pub(super) fn check(files: &[TreeFile]) -> Vec<Finding> {
    let is_case = |path: &&str| path.starts_with("cases/") && !path.starts_with("cases/make/");
    let cases: Vec<_> = files
        .iter()
        .map(|file| file.path.as_str())
        .filter(is_case)
        .collect();
    let mut findings = Vec::new();
    for registry in REGISTRIES.iter().filter(|registry| registry.has_cases) {
        for entry in registry.entries(files) {
            let bare = entry
                .names
                .iter()
                .filter(|name| !cases.iter().any(|path| holds(path, name)));
            findings.extend(bare.map(|name| {
                let why = format!(
                    "the {} `{name}` has no golden case in cases/",
                    registry.what
                );
                entry.file.finding(None, why)
            }));
        }
    }
    findings
}

/// Whether `path` holds `name`, in any case, between characters that are neither letters nor digits.
fn holds(path: &str, name: &str) -> bool {
    let (path, name) = (path.to_lowercase(), name.to_lowercase());
    path.match_indices(&name).any(|(start, _)| {
        let before = path[..start].chars().next_back();
        let after = path[start + name.len()..].chars().next();
        ![before, after]
            .into_iter()
            .flatten()
            .any(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{lines_of, tree_of},
        *,
    };

    const FORMAT: (&str, &str) = (
        "crates/quant/src/formats/ggml/q8_0.rs",
        "submit! { name: \"q8_0\" }",
    );

    #[test]
    fn an_entry_without_a_case_is_found() {
        let files = tree_of(&[FORMAT, ("cases/quant_gguf/Q8_00.safetensors", "")]);
        let expected = [format!(
            "{}: the quant format `q8_0` has no golden case in cases/",
            FORMAT.0
        )];
        assert_eq!(lines_of(&check(&files)), expected);
    }

    #[test]
    fn an_entry_with_a_case_passes() {
        assert!(
            check(&tree_of(&[
                FORMAT,
                ("cases/quant_gguf/Q8_0.safetensors", "")
            ]))
            .is_empty()
        );
    }

    #[test]
    fn a_name_is_a_whole_word_of_the_path() {
        for (path, name, expected) in [
            ("cases/patches/linear_lora_alpha2.safetensors", "lora", true),
            ("cases/flux/lora1_kohya.safetensors", "kohya", true),
            ("cases/layers/linear_xf32_wf32.safetensors", "f32", false),
            ("cases/layers/linear_bf16.safetensors", "f16", false),
            ("cases/make/gen_lora.py", "lora", true),
        ] {
            assert_eq!(holds(path, name), expected, "{path} {name}");
        }
    }
}
