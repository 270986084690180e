//! Tests of the public API, one module per feature.

mod detection;
mod dialects;
mod files;
mod finite;
mod fixtures;
mod golden;
mod lora;
mod mutations;
mod peft;
mod row_slice;
mod rows;
mod set;
mod sparse;
