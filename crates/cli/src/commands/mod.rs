//! One module a command.

mod check;
mod completions;
mod inspect;
mod merge;
mod refusals;
mod registry;
mod rewrite;
pub mod sample;
pub mod sweep;

pub use rewrite::RewriteError;

use crate::{
    CliError, Console, Exit,
    args::{Cli, Command, GlobalArgs},
};

/// Runs the command that was asked for.
pub(crate) fn dispatch(cli: &Cli, console: &Console) -> Result<Exit, CliError> {
    set_threads(&cli.global)?;
    let flags = &cli.global;
    match &cli.command {
        Command::Sweep(args) => sweep::run(args, flags, console),
        Command::Sample(args) => sample::run(args, flags, console),
        Command::Inspect(args) => inspect::run(args, console),
        Command::Check(args) => check::run(args, flags, console),
        Command::Merge(args) => merge::run(args, flags, console),
        Command::Quantize(args) => rewrite::quantize::run(args, console),
        Command::Dequantize(args) => rewrite::run_dequantize(args, console),
        Command::Convert(args) => rewrite::run_convert(args, console),
        Command::Registry(args) => registry::run(args, console),
        Command::Completions { shell } => completions::run(*shell),
    }
}

/// Sizes rayon's global pool, which every kernel uses.
fn set_threads(flags: &GlobalArgs) -> Result<(), CliError> {
    let Some(threads) = flags.threads.map(usize::from) else {
        return Ok(());
    };
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .map_err(|source| CliError::Threads { threads, source })
}

/// Version of every `--json` document.
pub(crate) const JSON_VERSION: u32 = 1;
