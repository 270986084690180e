//! `xtask bench`: starts the bench runner in release, since an unoptimised figure says nothing.

use crate::{Failure, workspace};

/// Passes `arguments` on to the runner.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command = workspace::cargo([
        "run",
        "--release",
        "--quiet",
        "--package",
        "overglaze-bench",
        "--",
    ]);
    workspace::run(command.args(arguments))
}
