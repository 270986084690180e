//! `xtask peers`: has the peers' own packages read what `overglaze quantize` writes.
//!
//! Makes a Python environment of them under the target folder, once, and runs `cases/make/read_back.py` in it. Not part
//! of the tests: the packages are large.

use std::{ffi::OsString, path::PathBuf};

use crate::{Failure, workspace};

/// Passes `arguments` on to the script.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let target = workspace::target_directory()?;
    let python = environment(target.join("peers"))?;
    let build = &mut workspace::cargo_over_all(&["build", "--quiet"], &["--bins"]);
    workspace::run(build)?;
    let mut all: Vec<OsString> = vec!["-B".into(), "cases/make/read_back.py".into()];
    all.push(target.join("debug").join("overglaze").into());
    all.push(target.join("peers").join("files").into());
    all.extend(arguments.iter().map(OsString::from));
    workspace::run(&mut workspace::program(python, all))
}

/// The environment's Python; what is missing of its packages is installed.
fn environment(folder: PathBuf) -> Result<PathBuf, Failure> {
    let python = folder.join("bin").join("python");
    if !python.exists() {
        let make = ["-m".into(), "venv".into(), folder.into_os_string()];
        workspace::run(&mut workspace::program("python3", make))?;
    }
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--requirement",
        REQUIREMENTS,
    ];
    workspace::run(&mut workspace::program(&python, install))?;
    Ok(python)
}

const REQUIREMENTS: &str = "cases/make/requirements-peers.txt";
