//! The folder this workspace lives in, and the programs started there.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::Failure;

/// The root folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .parent()
        .expect("xtask lies in a folder of the workspace")
        .to_path_buf()
}

/// `cargo ARGUMENTS…`, started in the root.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    // The cargo that runs this program, so that a `+toolchain` on the command line holds.
    program(
        std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        arguments,
    )
}

/// `cargo BEFORE… AFTER…` over every package, with both CPU backends.
///
/// Steps that share this share what they build: other packages or features would build Burn again.
pub(crate) fn cargo_over_all(before: &[&str], after: &[&str]) -> Command {
    // Flex is a default feature.
    let all = ["--workspace", "--features", "overglaze-cli/ndarray"];
    cargo(before.iter().chain(&all).chain(after))
}

/// `name ARGUMENTS…`, started in the root.
pub(crate) fn program<S: AsRef<OsStr>>(
    name: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root());
    command
}

/// Runs `command` to its end, its output passed through.
///
/// # Errors
/// [`Failure::Start`] or [`Failure::Exit`].
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command
        .status()
        .map_err(|source| cannot_start(command, source))?;
    if status.success() {
        Ok(())
    } else {
        Err(ended(command, status.code()))
    }
}

/// Runs `command` to its end and gives what it wrote on stdout.
///
/// # Errors
/// [`Failure::Start`] or [`Failure::Exit`], which carries what it wrote on stderr.
pub(crate) fn read(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .map_err(|source| cannot_start(command, source))?;
    if status.success() {
        return Ok(stdout);
    }
    crate::output::complain(String::from_utf8_lossy(&stderr));
    Err(ended(command, status.code()))
}

/// `cargo metadata --no-deps`: the packages of the workspace.
///
/// # Errors
/// As [`read`], or [`Failure::Metadata`].
pub(crate) fn metadata() -> Result<Value, Failure> {
    let json = read(&mut cargo([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
    ]))?;
    serde_json::from_slice(&json).map_err(|source| Failure::Metadata { source })
}

/// Where cargo puts what it builds.
///
/// # Errors
/// As [`metadata`].
pub(crate) fn target_directory() -> Result<PathBuf, Failure> {
    let metadata = metadata()?;
    Ok(metadata["target_directory"]
        .as_str()
        .map_or_else(|| root().join("target"), PathBuf::from))
}

fn cannot_start(command: &Command, source: std::io::Error) -> Failure {
    Failure::Start {
        program: command.get_program().to_string_lossy().into(),
        source,
    }
}

fn ended(command: &Command, code: Option<i32>) -> Failure {
    Failure::Exit {
        command: command_line(command),
        code,
    }
}

/// The command as one would type it, with the program's folder left out.
pub(crate) fn command_line(command: &Command) -> String {
    let name = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
