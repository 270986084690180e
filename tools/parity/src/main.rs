//! `overglaze-parity [--cases DIR] [--device D] [--filter S] [--json]`; `cargo xtask parity` starts it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program"
)]

use std::{path::PathBuf, process::ExitCode};

use burn::tensor::Device;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
use burn::tensor::DeviceType;
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
    device: DeviceName,
    /// Runs only cases whose `area/name` contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Prints one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DeviceName {
    Flex,
    Ndarray,
    /// The first CUDA card.
    #[cfg(feature = "cuda")]
    Cuda,
    /// The first Vulkan device; Mesa's lavapipe is one on the CPU.
    #[cfg(feature = "vulkan")]
    Vulkan,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let device = match args.device.resolve() {
        Ok(device) => device,
        Err(missing) => {
            eprintln!("error: this machine has no {missing}; choose another --device");
            return ExitCode::from(2);
        }
    };
    let results = match run_all(&args.cases, &args.filter, &device) {
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

impl DeviceName {
    /// The device, or what kind of device is missing.
    fn resolve(self) -> Result<Device, &'static str> {
        match self {
            Self::Flex => Ok(Device::flex()),
            #[expect(
                deprecated,
                reason = "Burn prefers Flex; ndarray is still one of our backends"
            )]
            Self::Ndarray => Ok(Device::ndarray()),
            #[cfg(feature = "cuda")]
            Self::Cuda => first(DeviceType::Cuda).ok_or("CUDA card with its driver"),
            #[cfg(feature = "vulkan")]
            Self::Vulkan => first(DeviceType::Wgpu).ok_or("device with a Vulkan driver"),
        }
    }
}

#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn first(kind: DeviceType) -> Option<Device> {
    Device::enumerate(kind).into_iter().next()
}
