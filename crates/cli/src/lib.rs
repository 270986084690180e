//! The `overglaze` command, as a library.
//!
//! The binary is two lines that call [`main()`]. A crate that registers a patch kind of its own can link this
//! library into a binary of the same two lines and sweep with its kind.
//!
//! Commands and flags are parsed in [`args`]; one module a command lies in [`commands`]. What they are glued
//! from (the demo, devices, adapter listings, sheets) is public so that tests and other front ends can use it.

pub mod args;
mod budget;
pub mod commands;
mod console;
pub mod demo;
pub mod device;
mod document;
mod error;
mod examples;
mod exit;
mod interrupt;
mod key_list;
mod latents;
pub mod lora_arg;
pub mod loras;
pub mod model_source;
mod noise;
mod output_file;
mod outputs;
mod pictures;
pub mod preview;
mod progress;
pub mod prompts;
mod residency;
pub mod restoration;
pub mod sampling;
pub mod sheet;
mod shown;
mod table;
mod tensor_file;

pub use budget::{Budget, WeightMemory, weight_budget};
pub use console::Console;
pub use error::CliError;
pub use exit::{Exit, main, run};
pub use key_list::{adapter_of_keys, model_of_keys};
pub use latents::Latents;
pub use noise::seeded_noise;
pub use pictures::decoded;
pub use residency::Residency;
