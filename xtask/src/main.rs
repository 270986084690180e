//! The project's chores: `cargo xtask ci|tidy|parity|bench|golden|peers|fuzz|sanitize`.
//!
//! One file per subcommand. This program drives cargo and reads files; it depends on no crate of the
//! workspace, so it builds in seconds before anything else does.

use std::process::ExitCode;

use failure::Failure;

mod bench;
mod ci;
mod failure;
mod fuzz;
mod golden;
mod output;
mod parity;
mod peers;
mod sanitize;
mod tidy;
mod workspace;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<(), Failure> {
    let (command, rest) = arguments.split_first().ok_or_else(usage)?;
    match command.as_str() {
        "ci" => ci::run(rest),
        "tidy" => tidy::run(rest),
        "parity" => parity::run(rest),
        "bench" => bench::run(rest),
        "golden" => golden::run(rest),
        "peers" => peers::run(rest),
        "fuzz" => fuzz::run(rest),
        "sanitize" => sanitize::run(rest),
        "help" | "--help" | "-h" => {
            output::say(USAGE);
            Ok(())
        }
        _ => Err(usage()),
    }
}

fn usage() -> Failure {
    Failure::Usage { text: USAGE.into() }
}

const USAGE: &str = "\
usage: cargo xtask COMMAND
  ci [--only STEP]… [--skip STEP]… [--list]   everything CI runs, stopping at the first failure
  tidy                                        the rules that rustc and clippy do not know
  parity [ARGUMENT…]                          the golden cases of the peers (--cases, --device, --filter, --json)
  bench [NAME]                                one JSON line per figure, in release
  golden [--from DIR]                         makes the cases of cases/ again
  peers [ARGUMENT…]                           has the peers read what we write (--ggml LIBRARY, --markdown FILE, --sheet FILE)
  fuzz [--seconds N] [TARGET…]                random files for the parsers (a nightly compiler and cargo-fuzz)
  sanitize [miri] [address] [thread]          the crates with unsafe code under Miri and two sanitizers (a nightly compiler)";
