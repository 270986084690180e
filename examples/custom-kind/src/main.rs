//! A patch kind of its own, in a binary that runs every `overglaze` command with it:
//! `cargo run -p example-custom-kind -- registry` lists `scaled-identity` among the kinds.

mod scaled_identity;

use std::process::ExitCode;

fn main() -> ExitCode {
    overglaze_cli::main()
}
