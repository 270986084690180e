//! Where results and notes go: results to stdout, notes to stderr, progress to stderr on a terminal.

use std::{
    cell::Cell,
    io::{self, ErrorKind, IsTerminal, Write},
};

use serde::Serialize;

use crate::{CliError, commands::JSON_VERSION, shown};

/// How much a command says, and in which form.
#[derive(Clone, Debug)]
pub struct Console {
    is_json: bool,
    is_quiet: bool,
    has_progress: bool,
    /// Whether the one document was printed.
    has_result: Cell<bool>,
}

impl Console {
    /// As the flags say; progress appears where stderr is a terminal and nobody asked for quiet.
    #[must_use]
    pub fn new(flags: &crate::args::GlobalArgs) -> Self {
        Self {
            is_json: flags.json,
            is_quiet: flags.quiet,
            has_progress: !flags.quiet && io::stderr().is_terminal(),
            has_result: Cell::new(false),
        }
    }

    /// Whether progress is shown.
    #[must_use]
    pub fn has_progress(&self) -> bool {
        self.has_progress
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
            false => shown::lines(&text()),
        };
        if !output.ends_with('\n') {
            output.push('\n');
        }
        self.has_result.set(true);
        write_stdout(output.as_bytes())
    }

    /// Says why the command failed: on stderr, and as the JSON document where one is wanted and was not printed.
    pub(crate) fn failure(&self, sentence: &str) {
        drop(writeln!(io::stderr(), "error: {sentence}"));
        if self.is_json && !self.has_result.get() {
            failure_document(sentence);
        }
    }

    /// Prints a remark on stderr, unless somebody asked for quiet.
    pub fn note(&self, text: &str) {
        if !self.is_quiet {
            drop(writeln!(io::stderr(), "note: {}", shown::message(text)));
        }
    }

    /// Prints what is to be said of a file, as remarks that name it.
    pub(crate) fn file_notes(&self, notes: &[String]) {
        notes.iter().for_each(|note| self.note(note));
    }

    /// Prints what is to be said of the adapter `name`, as remarks.
    pub(crate) fn notes(&self, name: &str, notes: &[String]) {
        for note in notes {
            self.note(&format!("`{name}`: {note}"));
        }
    }
}

/// Prints the JSON document of a command that failed.
pub(crate) fn failure_document(sentence: &str) {
    let document = serde_json::json!({"version": JSON_VERSION, "error": sentence});
    // The failure is on stderr already.
    drop(write_stdout(format!("{document:#}\n").as_bytes()));
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
