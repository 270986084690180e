//! What each step of `ci` runs.
//!
//! Burn's CPU backends take minutes to compile, so all steps over the whole workspace name the same
//! packages, profile and features: clippy, docs and the type checks share one set of checked crates, and
//! tests, doc tests and parity one set of built crates.

use std::process::Command;

use crate::{Failure, parity, workspace};

/// One step.
pub(super) struct Step {
    /// As `--only` and `--skip` name it.
    pub(super) name: &'static str,
    /// What it holds up.
    pub(super) title: &'static str,
    /// What it runs, in order.
    pub(super) commands: fn() -> Result<Vec<Command>, Failure>,
}

/// Every step, cheapest first.
pub(super) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        title: "formatting",
        commands: fmt,
    },
    Step {
        name: "tidy",
        title: "rules that clippy does not know",
        commands: tidy,
    },
    Step {
        name: "clippy",
        title: "lints of libraries and binaries",
        commands: clippy,
    },
    Step {
        name: "clippy-tests",
        title: "lints of tests and examples",
        commands: clippy_tests,
    },
    Step {
        name: "leaves",
        title: "each leaf alone, without default features",
        commands: leaves,
    },
    Step {
        name: "alone",
        title: "a program per leaf, on that leaf and Burn only",
        commands: alone,
    },
    Step {
        name: "test",
        title: "tests",
        commands: test,
    },
    Step {
        name: "doc-test",
        title: "documentation examples",
        commands: doc_test,
    },
    Step {
        name: "doc",
        title: "documentation without warnings",
        commands: doc,
    },
    Step {
        name: "parity-flex",
        title: "golden cases on Flex",
        commands: parity_flex,
    },
    Step {
        name: "parity-ndarray",
        title: "golden cases on ndarray",
        commands: parity_ndarray,
    },
    Step {
        name: "vulkan",
        title: "kernels on a Vulkan device, which may be Mesa's on the CPU",
        commands: vulkan,
    },
    Step {
        name: "deny",
        title: "licences, bans and sources of dependencies",
        commands: deny,
    },
    Step {
        name: "machete",
        title: "unused dependencies",
        commands: machete,
    },
    Step {
        name: "cuda",
        title: "type check of the cuda feature",
        commands: cuda,
    },
];

const LEAVES: [&str; 3] = ["patches", "quant", "stream"];

fn fmt() -> Result<Vec<Command>, Failure> {
    Ok(vec![workspace::cargo(["fmt", "--all", "--", "--check"])])
}

fn tidy() -> Result<Vec<Command>, Failure> {
    Ok(vec![workspace::cargo([
        "run",
        "--quiet",
        "--package",
        "xtask",
        "--",
        "tidy",
    ])])
}

fn clippy() -> Result<Vec<Command>, Failure> {
    Ok(vec![workspace::cargo_over_all(
        &["clippy"],
        &["--lib", "--bins", "--", "-D", "warnings"],
    )])
}

fn clippy_tests() -> Result<Vec<Command>, Failure> {
    Ok(vec![workspace::cargo_over_all(
        &["clippy"],
        &["--tests", "--examples", "--", "-D", "warnings"],
    )])
}

fn leaves() -> Result<Vec<Command>, Failure> {
    let check = |leaf| {
        workspace::cargo([
            "check",
            "--no-default-features",
            "-p",
            &format!("overglaze-{leaf}"),
        ])
    };
    Ok(LEAVES.into_iter().map(check).collect())
}

/// Built in one command, so that Burn is built once for all of them, and then run.
fn alone() -> Result<Vec<Command>, Failure> {
    let programs = LEAVES.map(|leaf| format!("example-{leaf}-alone"));
    let packages = programs.iter().flat_map(|program| ["-p", program]);
    let build = workspace::cargo(["build"].into_iter().chain(packages));
    let built = workspace::target_directory()?.join("debug");
    let runs = programs
        .iter()
        .map(|program| workspace::program(built.join(program), NOTHING));
    Ok(std::iter::once(build).chain(runs).collect())
}

const NOTHING: [&str; 0] = [];

fn test() -> Result<Vec<Command>, Failure> {
    let mut command = workspace::cargo_over_all(&["nextest", "run", "--profile", "ci"], &[]);
    command.env("INSTA_UPDATE", "no");
    Ok(vec![command])
}

fn doc_test() -> Result<Vec<Command>, Failure> {
    Ok(vec![workspace::cargo_over_all(&["test", "--doc"], &[])])
}

fn doc() -> Result<Vec<Command>, Failure> {
    let mut command = workspace::cargo_over_all(&["doc", "--no-deps"], &[]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    Ok(vec![command])
}

fn parity_flex() -> Result<Vec<Command>, Failure> {
    parity_on("flex")
}

fn parity_ndarray() -> Result<Vec<Command>, Failure> {
    parity_on("ndarray")
}

fn parity_on(device: &str) -> Result<Vec<Command>, Failure> {
    let mut commands = parity::commands(&["--device".into(), device.into()])?;
    commands.iter_mut().for_each(|command| {
        command.env("INSTA_UPDATE", "no");
    });
    Ok(commands)
}

/// With a build of Burn of its own.
fn vulkan() -> Result<Vec<Command>, Failure> {
    let features = ["-p", "overglaze-parity", "--features", "vulkan"];
    let lints = ["clippy"].into_iter().chain(features);
    let lints = workspace::cargo(lints.chain(["--all-targets", "--", "-D", "warnings"]));
    let tests = ["nextest", "run", "--profile", "ci"].into_iter();
    let tests = workspace::cargo(tests.chain(features).chain(["-E", "binary(device)"]));
    let parity = parity::commands(&["--device".into(), "vulkan".into()])?;
    Ok([lints, tests].into_iter().chain(parity).collect())
}

fn deny() -> Result<Vec<Command>, Failure> {
    let check = [
        "deny",
        "--log-level",
        "error",
        "check",
        "licenses",
        "bans",
        "sources",
    ];
    Ok(vec![workspace::cargo(check)])
}

/// Called by its own name: below `cargo run`, `cargo machete` takes its subcommand for a folder.
fn machete() -> Result<Vec<Command>, Failure> {
    Ok(vec![workspace::program("cargo-machete", NOTHING)])
}

/// `DOCS_RS` keeps the build script of cubecl's LLVM from downloading it; a type check does not link.
fn cuda() -> Result<Vec<Command>, Failure> {
    let check = [
        "check",
        "-p",
        "overglaze-cli",
        "--no-default-features",
        "--features",
        "cuda",
    ];
    let mut command = workspace::cargo(check);
    command.env("DOCS_RS", "1");
    Ok(vec![command])
}
