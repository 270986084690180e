//! Why a chore stopped.

use std::{fmt, io, path::PathBuf};

/// The one error of this program; each message says what to do or which command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line was not understood.
    Usage { text: String },
    /// A program could not be started.
    Start { program: String, source: io::Error },
    /// A program ended with an error.
    Exit { command: String, code: Option<i32> },
    /// A file or folder could not be read or written.
    Io { path: PathBuf, source: io::Error },
    /// The output of `cargo metadata` was not the JSON it should be.
    Metadata { source: serde_json::Error },
    /// `tidy` found something.
    Untidy { num_findings: usize },
    /// A step of `ci` failed.
    Step {
        name: &'static str,
        cause: Box<Self>,
    },
    /// A program that a chore needs is not there.
    NotInstalled { what: String, remedy: &'static str },
    /// A selected case was not generated.
    NoCase { prefix: String, folder: PathBuf },
}

impl Failure {
    /// 2 for a wrong command line, 1 for everything else.
    pub(crate) fn exit_code(&self) -> u8 {
        if matches!(self, Self::Usage { .. }) {
            2
        } else {
            1
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage { text } => f.write_str(text),
            Self::Start { program, source } => write!(f, "cannot start `{program}`: {source}"),
            Self::Exit {
                command,
                code: Some(code),
            } => {
                write!(f, "`{command}` ended with exit code {code}")
            }
            Self::Exit {
                command,
                code: None,
            } => write!(f, "`{command}` was killed by a signal"),
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Metadata { source } => {
                write!(
                    f,
                    "`cargo metadata` printed something else than its JSON: {source}"
                )
            }
            Self::Untidy { num_findings } => {
                write!(f, "tidy: {num_findings} finding(s), see above")
            }
            Self::Step { name, cause } => {
                write!(
                    f,
                    "ci FAILED at `{name}`: {cause}; again: cargo xtask ci --only {name}"
                )
            }
            Self::NotInstalled { what, remedy } => {
                write!(f, "{what} is missing; install it with `{remedy}`")
            }
            Self::NoCase { prefix, folder } => {
                write!(
                    f,
                    "{}: no file starts with `{prefix}`; was its area generated?",
                    folder.display()
                )
            }
        }
    }
}
