//! Where results and notes go: results to stdout, notes to stderr and only on a terminal.

use std::io::{self, ErrorKind, IsTerminal, Write};

use serde::Serialize;

use crate::CliError;

/// How much a command says, and in which form.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    is_json: bool,
    has_notes: bool,
}

impl Console {
    /// As the flags say; notes and progress appear where stderr is a terminal and nobody asked for quiet.
    #[must_use]
    pub fn new(flags: &crate::args::GlobalArgs) -> Self {
        Self {
            is_json: flags.json,
            has_notes: !flags.quiet && io::stderr().is_terminal(),
        }
    }

    /// Whether the result is one JSON document.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// Whether progress is shown.
    #[must_use]
    pub fn has_notes(&self) -> bool {
        self.has_notes
    }

    /// Prints the result: `document` as JSON or `text()`, as the flags say.
    ///
    /// # Errors
    /// [`CliError::Write`] when stdout cannot be written; a reader that left is no error.
    pub fn result(
        &self,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        let mut output = match self.is_json {
            true => serde_json::to_string_pretty(document)
                .map_err(io::Error::from)
                .map_err(failed)?,
            false => text(),
        };
        if !output.ends_with('\n') {
            output.push('\n');
        }
        write_stdout(output.as_bytes())
    }

    /// Prints a remark on stderr, where there is somebody to read it.
    pub fn note(&self, text: &str) {
        if self.has_notes {
            drop(writeln!(io::stderr(), "{text}"));
        }
    }
}

/// Writes to stdout; a reader that left (`| head`) is no error.
pub(crate) fn write_stdout(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(failed),
    }
}

fn failed(source: io::Error) -> CliError {
    CliError::Write {
        path: "standard output".into(),
        source,
    }
}
