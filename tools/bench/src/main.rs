//! `overglaze-bench NAME`: measures one thing and prints one JSON line per figure.
//!
//! Figures of one run were taken in turns, so that they can be compared; those of two runs cannot.

mod bandwidth;
mod dropin;
mod linear;
mod load;
mod merge;
mod quant;
mod sidecar;
mod swap;
mod timing;

use std::{env, io, process::ExitCode};

fn main() -> ExitCode {
    let name = env::args().nth(1).unwrap_or_default();
    let Some((_, run)) = BENCHES.iter().find(|(known, _)| *known == name) else {
        return fail(&format!(
            "no benchmark is called `{name}`; known: {}",
            known().join(", ")
        ));
    };
    match run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// As in the `overglaze` binary: it keeps freed pages, which a product would else fault in anew.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Bench = fn(&mut dyn io::Write) -> io::Result<()>;

const BENCHES: &[(&str, Bench)] = &[
    ("dropin", dropin::run),
    ("linear", linear::run),
    ("load", load::run),
    ("merge", merge::run),
    ("quant", quant::run),
    ("sidecar", sidecar::run),
    ("swap", swap::run),
];

fn known() -> Vec<&'static str> {
    BENCHES.iter().map(|(name, _)| *name).collect()
}

#[expect(
    clippy::print_stderr,
    reason = "a program's way to say what went wrong"
)]
fn fail(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::FAILURE
}
