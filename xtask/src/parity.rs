//! `xtask parity`: starts the parity runner, which lives beside the CLI.

use std::process::Command;

use crate::{Failure, workspace};

/// Passes `arguments` on to the runner.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    commands(arguments)?.iter_mut().try_for_each(workspace::run)
}

/// Builds with what `ci` and the tests build, then starts the runner: `cargo run -p` would choose features
/// of its own and compile both of Burn's CPU backends once more. A device with a memory of its own needs a feature of the
/// runner, and a build of Burn with it.
pub(crate) fn commands(arguments: &[String]) -> Result<Vec<Command>, Failure> {
    let build = match feature(arguments) {
        Some(feature) => workspace::cargo([
            "build",
            "--quiet",
            "--package",
            RUNNER,
            "--features",
            feature,
        ]),
        None => workspace::cargo_over_all(&["build", "--quiet"], &["--bins"]),
    };
    let runner = workspace::target_directory()?.join("debug").join(RUNNER);
    Ok(vec![build, workspace::program(runner, arguments)])
}

/// The feature that brings the device of `--device`, where it is none of the CPU.
fn feature(arguments: &[String]) -> Option<&'static str> {
    let mut arguments = arguments.iter();
    let device = loop {
        let argument = arguments.next()?;
        match argument.strip_prefix("--device") {
            Some("") => break arguments.next()?.as_str(),
            Some(device) => break device.strip_prefix('=')?,
            None => {}
        }
    };
    FEATURES.into_iter().find(|feature| *feature == device)
}

const RUNNER: &str = "overglaze-parity";
const FEATURES: [&str; 2] = ["cuda", "vulkan"];
