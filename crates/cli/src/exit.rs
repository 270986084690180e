//! From arguments to an exit code: 0 done, 1 failed, 2 usage, 3 the adapter does not fit the model.

use std::{error::Error, ffi::OsString, io::Write, process::ExitCode};

use clap::Parser;
use overglaze_models::ModelError;

use crate::{CliError, Console, args::Cli, commands, console, interrupt, shown};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// What was asked for is done.
    Done,
    /// It failed.
    Failed,
    /// It was asked for in a way that makes no sense.
    Usage,
    /// An adapter does not fit the model.
    DoesNotFit,
}

impl Exit {
    /// The process's exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::DoesNotFit => 3,
        }
    }
}

impl CliError {
    /// How a run ends that ends with this error.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Core(overglaze_core::Error::NothingApplied { .. }) | Self::NothingFits { .. } => {
                Exit::DoesNotFit
            }
            Self::NoTextEncoder { .. }
            | Self::NoConditioning { .. }
            | Self::NoLoras(_)
            | Self::Core(overglaze_core::Error::PatternUnmatched { .. })
            | Self::Model(ModelError::UnknownWord { .. })
            | Self::PromptLine { .. }
            | Self::OutputPath { .. }
            | Self::SameFile { .. }
            | Self::SizeTooLarge { .. }
            | Self::FolderOfLoras { .. }
            | Self::DirectStreamed { .. }
            | Self::SettingUnused { .. } => Exit::Usage,
            _ => Exit::Failed,
        }
    }
}

/// Runs the command of the process's arguments; the whole of a binary's `main`.
#[must_use]
pub fn main() -> ExitCode {
    if let Err(error) = interrupt::install() {
        complain(&error);
        return Exit::Failed.code().into();
    }
    run(std::env::args_os()).code().into()
}

/// Runs one command line (the program's name first), printing what it has to say.
pub fn run<I, A>(arguments: I) -> Exit
where
    I: IntoIterator<Item = A>,
    A: Into<OsString> + Clone,
{
    let arguments: Vec<OsString> = arguments.into_iter().map(A::into).collect();
    let is_json = arguments.iter().any(|argument| argument == "--json");
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, is_json),
    };
    let console = Console::new(&cli.global);
    match commands::dispatch(&cli, &console) {
        Ok(exit) => exit,
        Err(error) => {
            console.failure(&sentence(&error));
            error.exit()
        }
    }
}

/// Prints clap's text: help and version are no failure.
fn refuse(error: &clap::Error, is_json: bool) -> Exit {
    // Nobody is left to tell where even this cannot be printed.
    drop(error.print());
    if error.use_stderr() {
        if is_json {
            console::failure_document(&first_paragraph(&error.to_string()));
        }
        Exit::Usage
    } else {
        Exit::Done
    }
}

/// What clap says before its usage and hints, on one line.
fn first_paragraph(text: &str) -> String {
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    let words: Vec<_> = paragraph.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

fn complain(error: &CliError) {
    drop(writeln!(std::io::stderr(), "error: {}", sentence(error)));
}

/// `message: cause: cause`, fit to be shown.
pub(crate) fn sentence(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    shown::message(&text)
}
