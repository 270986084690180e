//! `xtask sanitize`: runs the crates with `unsafe` code under Miri, `AddressSanitizer` and `ThreadSanitizer`.
//!
//! Miri sees most, but maps no files and is too slow for products of usual sizes; the sanitizers run all tests of these
//! crates. Miri checks by the rules of tree borrows, since crossbeam, which Rayon is built on, breaks the older ones, and
//! leaves out leaks, since Rayon's threads never end. On its one processor Rayon would start one thread, and tiles that
//! overlap would go unseen: it plays four.

use std::process::Command;

use crate::{Failure, output, workspace};

/// Runs the tools named, or all, and stops at the first finding.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let names: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
    if !arguments.iter().all(|name| names.contains(&name.as_str())) {
        let names = names.join(" ");
        let text = format!("usage: cargo xtask sanitize [TOOL…]; the tools: {names}");
        return Err(Failure::Usage { text });
    }
    let host = host()?;
    let is_wanted = |tool: &&Tool| {
        arguments.is_empty() || arguments.iter().any(|argument| argument == tool.name)
    };
    for tool in TOOLS.iter().filter(is_wanted) {
        let mut command = command(tool, &host)?;
        let (name, value) = tool.flags;
        let line = workspace::command_line(&command);
        output::say(format_args!("{}: {name}=\"{value}\" {line}", tool.name));
        workspace::run(&mut command)?;
    }
    Ok(())
}

/// One of the checkers, and what it runs.
struct Tool {
    name: &'static str,
    /// The variable that tells the compiler or Miri what to do.
    flags: (&'static str, &'static str),
    cargo: &'static [&'static str],
    /// Parts of the names of the tests; all where there are none.
    tests: &'static [&'static str],
}

fn command(tool: &Tool, host: &str) -> Result<Command, Failure> {
    let mut command = nightly("cargo");
    command.args(tool.cargo);
    for package in OPTIMIZED {
        // At 3, as in other builds of tests, they take longer to build than the tests to run.
        let option = format!("profile.dev.package.{package}.opt-level=1");
        command.args(["--config", &option]);
    }
    let target = workspace::target_directory()?.join("sanitize");
    command.args(["--target", host, "--target-dir"]);
    // Where flags change, cargo builds everything again: each tool has a folder of its own.
    command.arg(target.join(tool.name));
    command.arg("--").args(tool.tests);
    command.env(tool.flags.0, tool.flags.1);
    Ok(command)
}

/// The nightly compiler's own target, once it and its components are seen to be there.
fn host() -> Result<String, Failure> {
    let missing = |what: &str| Failure::NotInstalled {
        what: what.into(),
        remedy: "rustup toolchain install nightly --component miri,rust-src",
    };
    let version = nightly("rustc").arg("-vV").output();
    let version = version.ok().filter(|output| output.status.success());
    let version = version.ok_or_else(|| missing("a nightly compiler under rustup"))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let listed = ["component", "list", "--toolchain", "nightly", "--installed"];
    let components = workspace::read(&mut workspace::program("rustup", listed))?;
    let components = String::from_utf8_lossy(&components).into_owned();
    for component in ["miri", "rust-src"] {
        if !components.lines().any(|line| line.starts_with(component)) {
            return Err(missing(&format!("nightly's component {component}")));
        }
    }
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| missing("a nightly compiler that names its host"))
}

/// `name +nightly`, whichever compiler the program that runs this one has chosen.
fn nightly(name: &str) -> Command {
    let mut command = workspace::program(name, ["+nightly"]);
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    // What to install is said, not done.
    command.env("RUSTUP_AUTO_INSTALL", "0");
    command
}

const TOOLS: [Tool; 3] = [
    Tool {
        name: "miri",
        flags: (
            "MIRIFLAGS",
            "-Zmiri-tree-borrows -Zmiri-ignore-leaks -Zmiri-permissive-provenance -Zmiri-num-cpus=4",
        ),
        cargo: &["miri", "test", "--lib", "-p", QUANT],
        tests: &["kernels::written", "kernels::output_tile"],
    },
    Tool {
        name: "address",
        flags: ("RUSTFLAGS", "-Zsanitizer=address"),
        cargo: &["test", "--tests", "-p", QUANT, "-p", STREAM, "-p", PATCHES],
        tests: &[],
    },
    Tool {
        name: "thread",
        flags: ("RUSTFLAGS", "-Zsanitizer=thread"),
        // Races are seen only in code that was built to be watched, the standard library's included.
        cargo: &[
            "test",
            "-Zbuild-std",
            "--tests",
            "-p",
            QUANT,
            "-p",
            STREAM,
            "-p",
            PATCHES,
        ],
        tests: &[],
    },
];
const QUANT: &str = "overglaze-quant";
const STREAM: &str = "overglaze-stream";
const PATCHES: &str = "overglaze-patches";
const OPTIMIZED: [&str; 3] = ["gemm", "gemm-common", "gemm-f32"];
