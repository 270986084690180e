//! What a streamer has done so far, as numbers.

use serde::Serialize;

/// Counters of one [`Streamer`](crate::Streamer) since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StreamStats {
    /// Weights loaded, by whomever.
    pub loads: u64,
    /// Of those, weights the worker loaded before anyone asked.
    pub loads_ahead: u64,
    /// Bytes of all loads.
    pub bytes_loaded: u64,
    /// Acquires that found their weight in place.
    pub hits: u64,
    /// Acquires that had to wait for a load or for room.
    pub waits: u64,
    /// Time spent in the acquires that waited.
    pub stall_ns: u64,
    /// Weights removed to make room.
    pub evictions: u64,
    /// Bytes in slots now.
    pub live_slot_bytes: u64,
    /// The most bytes in slots at any moment.
    pub peak_slot_bytes: u64,
    /// The cap on bytes in slots.
    pub budget_bytes: u64,
    /// Weights of the model.
    pub num_weights: usize,
    /// Weights that stay resident by plan.
    pub resident_weights: usize,
    /// Bytes of all weights.
    pub model_bytes: u64,
}
