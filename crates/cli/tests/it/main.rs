//! Tests of the command line and of the library behind it, one module per feature.

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod adapter_notes;
mod budgets;
mod checking;
mod contact_sheet;
mod demo_numbers;
mod devices;
mod flux_checkpoint;
mod hostile_inputs;
mod inspecting;
mod interrupts;
mod json_page;
mod key_table;
mod labels;
mod lora_arguments;
mod lora_listing;
mod merging;
mod messages;
mod noise;
mod outputs;
mod overglaze;
mod previews;
mod reference;
mod registry;
mod restoration;
mod rewriting;
mod sampling;
mod sweep_json;
mod usage_messages;
