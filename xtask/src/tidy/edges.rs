//! Which workspace crates a crate may depend on, tests included. An edge that is not in the table is a
//! finding, so a new one is a change to this file.

use std::path::Path;

use serde_json::Value;

use super::Finding;

const EDGES: &[(&str, &[&str])] = &[
    ("overglaze-patches", &[]),
    ("overglaze-quant", &[]),
    ("overglaze-stream", &[]),
    (
        "overglaze-core",
        &["overglaze-patches", "overglaze-quant", "overglaze-stream"],
    ),
    (
        "overglaze-models",
        &[
            "overglaze-core",
            "overglaze-patches",
            "overglaze-quant",
            "overglaze-stream",
        ],
    ),
    ("overglaze-cli", LIBRARIES),
    (
        "overglaze-bench",
        &[
            "overglaze-core",
            "overglaze-patches",
            "overglaze-quant",
            "overglaze-stream",
        ],
    ),
    ("overglaze-parity", LIBRARIES),
    ("xtask", &[]),
];

const LIBRARIES: &[&str] = &[
    "overglaze-core",
    "overglaze-models",
    "overglaze-patches",
    "overglaze-quant",
    "overglaze-stream",
];

const ALL: &[&str] = &[
    "overglaze-cli",
    "overglaze-core",
    "overglaze-models",
    "overglaze-patches",
    "overglaze-quant",
    "overglaze-stream",
];

/// Checks the packages in the output of `cargo metadata --no-deps`.
pub(super) fn check(metadata: &Value) -> Vec<Finding> {
    let packages = metadata["packages"]
        .as_array()
        .map_or(&[] as &[Value], Vec::as_slice);
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Value) -> Vec<Finding> {
    let name = text(&package["name"]);
    let folder = Path::new(text(&package["manifest_path"]))
        .parent()
        .unwrap_or(Path::new(""));
    let dependencies = package["dependencies"]
        .as_array()
        .map_or(&[] as &[Value], Vec::as_slice);
    let dependencies = dependencies
        .iter()
        .map(|dependency| text(&dependency["name"]));
    let refused: Box<dyn Fn(&str) -> bool> = match (alone_on(folder), edges_of(name, folder)) {
        (Some(leaf), _) => Box::new(move |name| name != leaf && !name.starts_with("burn")),
        (None, Some(allowed)) => Box::new(|name| is_ours(name) && !allowed.contains(&name)),
        (None, None) => return vec![finding(name, "has no row in the table of crate edges")],
    };
    let refused = dependencies.filter(|dependency| refused(dependency));
    refused
        .map(|dependency| finding(name, &format!("must not depend on {dependency}")))
        .collect()
}

/// The leaf a program `examples/LEAF-alone` shows: besides Burn, all it may use.
fn alone_on(folder: &Path) -> Option<String> {
    let is_example = folder.parent()?.ends_with("examples");
    let leaf = folder.file_name()?.to_str()?.strip_suffix("-alone")?;
    is_example.then(|| format!("overglaze-{leaf}"))
}

fn edges_of(name: &str, folder: &Path) -> Option<&'static [&'static str]> {
    if folder
        .parent()
        .is_some_and(|parent| parent.ends_with("examples"))
    {
        return Some(ALL);
    }
    EDGES
        .iter()
        .find(|(package, _)| *package == name)
        .map(|(_, allowed)| *allowed)
}

fn is_ours(name: &str) -> bool {
    name.starts_with("overglaze") || name == "xtask"
}

fn finding(package: &str, why: &str) -> Finding {
    Finding {
        path: package.into(),
        line: None,
        why: why.into(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::lines_of, *};

    fn findings(name: &str, folder: &str, dependencies: &[&str]) -> Vec<String> {
        let dependencies: Vec<_> = dependencies
            .iter()
            .map(|name| json!({"name": name, "kind": "dev"}))
            .collect();
        let manifest = format!("/any/{folder}/Cargo.toml");
        let package =
            json!({"name": name, "manifest_path": manifest, "dependencies": dependencies});
        lines_of(&check(&json!({"packages": [package]})))
    }

    #[test]
    fn edges_of_the_table_pass() {
        assert!(
            findings(
                "overglaze-core",
                "crates/core",
                &["burn", "overglaze-quant"]
            )
            .is_empty()
        );
        assert!(findings("overglaze-quant", "crates/quant", &["burn", "gemm"]).is_empty());
        assert!(findings("overglaze-parity", "tools/parity", &["overglaze-core"]).is_empty());
        assert!(findings("own-kind", "examples/own-kind", &["overglaze-cli"]).is_empty());
    }

    #[test]
    fn a_new_edge_is_found() {
        for (name, folder, dependency) in [
            ("overglaze-quant", "crates/quant", "overglaze-stream"),
            ("overglaze-core", "crates/core", "overglaze-models"),
            ("overglaze-models", "crates/models", "overglaze-cli"),
            ("xtask", "xtask", "overglaze-core"),
            ("overglaze-cli", "crates/cli", "xtask"),
        ] {
            let expected = format!("{name}: must not depend on {dependency}");
            assert_eq!(findings(name, folder, &[dependency]), [expected]);
        }
    }

    #[test]
    fn a_package_without_a_row_is_found() {
        let expected = ["overglaze-new: has no row in the table of crate edges"];
        assert_eq!(findings("overglaze-new", "crates/new", &[]), expected);
    }

    #[test]
    fn a_program_of_one_leaf_uses_that_leaf_and_burn_only() {
        let of_quant = |dependency| findings("quant-alone", "examples/quant-alone", &[dependency]);
        assert!(of_quant("overglaze-quant").is_empty());
        assert!(of_quant("burn").is_empty());
        assert_eq!(
            of_quant("overglaze-core"),
            ["quant-alone: must not depend on overglaze-core"]
        );
        assert_eq!(of_quant("half"), ["quant-alone: must not depend on half"]);
    }
}
