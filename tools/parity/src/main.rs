//! `overglaze-parity [--cases DIR] [--device D] [--filter S] [--json]`; `cargo xtask parity` starts it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program"
)]

use std::{path::PathBuf, process::ExitCode};

use burn::tensor::Device;
use clap::{Parser, ValueEnum};
use overglaze_parity::{Report, run_all};

/// Runs every golden case and says how far each is from what the peers computed.
#[derive(Debug, Parser)]
struct Args {
    /// Folder of case files, searched with its subfolders.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cases"))]
    cases: PathBuf,
    /// Execution device.
    #[arg(long, value_enum, default_value = "flex")]
    device: CpuDevice,
    /// Runs only cases whose `area/name` contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Prints one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CpuDevice {
    Flex,
    Ndarray,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let results = match run_all(&args.cases, &args.filter, &args.device.resolve()) {
        Ok(results) => results,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let report = Report::new(&results);
    println!(
        "{}",
        if args.json {
            report.to_json()
        } else {
            report.to_table()
        }
    );
    if report.is_green() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl CpuDevice {
    fn resolve(self) -> Device {
        match self {
            Self::Flex => Device::flex(),
            #[expect(
                deprecated,
                reason = "Burn prefers Flex; ndarray is still one of our backends"
            )]
            Self::Ndarray => Device::ndarray(),
        }
    }
}
