//! `xtask fuzz`: feeds the parsers random files, and stops at the first that panics, hangs or takes too much memory.
//!
//! Needs a nightly compiler and `cargo install cargo-fuzz`. What it finds stays under `fuzz/artifacts`.

use std::fs;

use crate::{Failure, output, workspace};

/// Runs the targets named, or all, each for `--seconds` (600).
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut seconds = "600".to_owned();
    let mut names: Vec<&str> = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => seconds.clone_from(arguments.next().ok_or_else(usage)?),
            name if TARGETS.iter().any(|(known, _)| *known == name) => names.push(name),
            _ => return Err(usage()),
        }
    }
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    for (name, seeds) in TARGETS.iter().filter(|(name, _)| wanted(name)) {
        output::say(format_args!("fuzzing {name} for {seconds} s"));
        let corpus = workspace::root().join("fuzz/corpus").join(name);
        fs::create_dir_all(&corpus).map_err(|source| Failure::Io {
            path: corpus.clone(),
            source,
        })?;
        let mut command = workspace::program(
            "cargo",
            ["+nightly", "fuzz", "run", "--fuzz-dir", "fuzz", name],
        );
        // The program that runs this one may have chosen another compiler.
        command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        command.arg(corpus).args(*seeds).args([
            "--",
            &format!("-max_total_time={seconds}"),
            "-rss_limit_mb=1024",
            "-malloc_limit_mb=256",
            "-timeout=10",
            // From the start as long as files are.
            "-len_control=0",
            "-max_len=4096",
        ]);
        workspace::run(&mut command)?;
    }
    Ok(())
}

fn usage() -> Failure {
    let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    let names = names.join(" ");
    Failure::Usage {
        text: format!("usage: cargo xtask fuzz [--seconds N] [TARGET…]; the targets: {names}"),
    }
}

/// Names of the targets, and folders of files they begin with.
const TARGETS: [(&str, &[&str]); 4] = [
    ("formats", &[]),
    ("gguf", &["crates/stream/tests/data/gguf"]),
    ("pickle", &["crates/stream/tests/data/pickles"]),
    ("safetensors", &["cases/quant_fp8"]),
];
