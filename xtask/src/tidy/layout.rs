//! Every Rust file opens with `//!`, has at most 400 lines and a name that says what it holds.

use super::{Finding, TreeFile};

const MAX_LINES: usize = 400;

/// Names that collect what nobody placed. `base` is not among them: it is a word of this project.
const BANNED_STEMS: [&str; 7] = [
    "util", "utils", "helper", "helpers", "common", "misc", "types",
];

/// Checks every Rust file.
pub(super) fn check(files: &[TreeFile]) -> Vec<Finding> {
    files
        .iter()
        .filter(|file| file.is_rust())
        .flat_map(check_file)
        .collect()
}

fn check_file(file: &TreeFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !file.text.starts_with("//!") {
        findings.push(file.finding(1, "the first line must be `//!`, saying what the file is"));
    }
    let num_lines = file.text.lines().count();
    if num_lines > MAX_LINES {
        findings.push(file.finding(None, format!("{num_lines} lines, at most {MAX_LINES}")));
    }
    let folders = file.path.split('/').rev().skip(1);
    if let Some(name) = folders
        .chain([file.stem()])
        .find(|name| BANNED_STEMS.contains(name))
    {
        findings.push(file.finding(None, format!("`{name}`: name it after what it holds")));
    }
    findings
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
    fn a_good_file_passes() {
        assert!(findings("crates/a/src/base.rs", "//! What it is.\n").is_empty());
        assert!(findings("crates/a/src/b.rs", &"//! A.\n".repeat(400)).is_empty());
        assert!(findings("crates/a/tests/data/common.json", "{}").is_empty());
    }

    #[test]
    fn each_fault_is_found() {
        for (path, text, expected) in [
            ("a/b.rs", "// A.\n", "a/b.rs:1: the first line must be"),
            ("a/b.rs", "", "a/b.rs:1: the first line must be"),
            (
                "a/b.rs",
                &*"//! A.\n".repeat(401),
                "a/b.rs: 401 lines, at most 400",
            ),
            ("a/utils.rs", "//! A.\n", "a/utils.rs: `utils`: name it"),
            (
                "a/common/mod.rs",
                "//! A.\n",
                "a/common/mod.rs: `common`: name it",
            ),
        ] {
            let found = findings(path, text);
            assert!(
                found.len() == 1 && found[0].starts_with(expected),
                "{path}: {found:?}"
            );
        }
    }
}
