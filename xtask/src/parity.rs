//! `xtask parity`: starts the parity runner, which lives beside the CLI.

use std::process::Command;

use crate::{Failure, workspace};

/// Passes `arguments` on to the runner.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    commands(arguments)?.iter_mut().try_for_each(workspace::run)
}

/// Builds with what `ci` and the tests build, then starts the runner: `cargo run -p` would choose features
/// of its own and compile both of Burn's CPU backends once more.
pub(crate) fn commands(arguments: &[String]) -> Result<Vec<Command>, Failure> {
    let build = workspace::cargo_over_all(&["build", "--quiet"], &["--bins"]);
    let runner = workspace::target_directory()?
        .join("debug")
        .join("overglaze-parity");
    Ok(vec![build, workspace::program(runner, arguments)])
}
