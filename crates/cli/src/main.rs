//! The `overglaze` binary.
fn main() -> std::process::ExitCode {
    overglaze_cli::main()
}
