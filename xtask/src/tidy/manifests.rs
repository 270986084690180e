//! Every crate takes the workspace's lints, and every dependency comes from crates.io.

use super::{Finding, TreeFile};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks the manifests of crates and the lock file.
pub(super) fn check(files: &[TreeFile]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &TreeFile) -> Vec<Finding> {
    if file.path == "Cargo.lock" {
        return foreign_sources(file);
    }
    let is_crate = ["crates/", "examples/", "tools/", "xtask/"]
        .iter()
        .any(|part| file.path.starts_with(part));
    if is_crate && file.path.ends_with("/Cargo.toml") && !inherits_lints(&file.text) {
        let why = "the workspace's lints are missing: add `[lints]` with `workspace = true`";
        return vec![file.finding(None, why)];
    }
    Vec::new()
}

fn inherits_lints(manifest: &str) -> bool {
    let mut section = manifest
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "[lints]")
        .skip(1);
    section.find(|line| !line.is_empty() && !line.starts_with('#')) == Some("workspace = true")
}

fn foreign_sources(lock: &TreeFile) -> Vec<Finding> {
    let lines = lock.text.lines().enumerate();
    let foreign =
        lines.filter(|(_, line)| line.starts_with("source = ") && !line.contains(CRATES_IO));
    foreign
        .map(|(index, line)| lock.finding(index + 1, format!("not crates.io: {line}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{lines_of, tree_of},
        *,
    };

    fn findings(path: &str, text: &str) -> Vec<String> {
        lines_of(&check(&tree_of(&[(path, text)])))
    }

    #[test]
    fn lints_are_inherited_or_found_missing() {
        let path = "crates/a/Cargo.toml";
        assert!(findings(path, "[package]\n[lints]\nworkspace = true\n").is_empty());
        for bad in [
            "[package]\n",
            "[lints]\n[dependencies]\n",
            "[lints]\nworkspace = false\n",
        ] {
            assert!(
                findings(path, bad)[0].contains("lints are missing"),
                "{bad}"
            );
        }
        assert!(findings("Cargo.toml", "[workspace]\n").is_empty());
    }

    #[test]
    fn a_foreign_source_is_found() {
        let good = format!("source = \"{CRATES_IO}\"\n");
        assert!(findings("Cargo.lock", &good).is_empty());
        let bad = format!("{good}source = \"git+https://example.org/x\"\n");
        let expected = ["Cargo.lock:2: not crates.io: source = \"git+https://example.org/x\""];
        assert_eq!(findings("Cargo.lock", &bad), expected);
    }
}
