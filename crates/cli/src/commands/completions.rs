//! `completions`: a script for a shell.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::{CliError, Exit, args::Cli, console::write_stdout};

pub(crate) fn run(shell: Shell) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "overglaze", &mut script);
    write_stdout(&script)?;
    Ok(Exit::Done)
}
