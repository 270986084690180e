//! Weights streamed from disk to an execution device under a budget.
//!
//! A [`WeightSource`] yields the bytes, type tag and shape of named tensors and never learns what a
//! format is; where a container has numbers for types, the caller says what they mean ([`BlockTypes`]). A
//! [`Streamer`] keeps the weights of a model that runs layer after layer, cycle after cycle, within a budget: a
//! [`plan`] chosen once says which stay resident, a worker thread loads the next ones while one computes, and a
//! [`Lease`] keeps a weight in place while it is in use. The way back, a [`SafetensorsWriter`] or [`GgufWriter`],
//! writes a file tensor by tensor.

mod error;
mod ledger;
mod plan;
mod signal;
mod sink;
mod slot;
pub mod source;
mod stats;
mod streamer;

pub use error::StreamError;
pub use ledger::{Ledger, Reservation};
pub use plan::{Plan, plan};
pub use sink::{
    GgufLayout, GgufTensor, GgufWriter, SafetensorsLayout, SafetensorsWriter, SinkError,
};
pub use slot::{Slot, SlotPool};
pub use source::{
    MemorySource, TensorEntry, WeightSource,
    gguf::{BlockType, BlockTypes, GgufArray, GgufError, GgufText, GgufType, GgufValue},
    is_safetensors_type, open,
};
pub use stats::StreamStats;
pub use streamer::{Lease, SlotId, Streamable, Streamer, StreamerConfig};
