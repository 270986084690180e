//! The `overglaze` binary.

/// Keeps freed pages: a forward pass frees and wants the same sizes again and again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    overglaze_cli::main()
}
