//! Where the weights were during a run, as numbers.

use overglaze_core::BaseWeights;
use serde::Serialize;

/// Residency statistics; without a budget on the CPU nothing is streamed and most are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Residency {
    /// Whether layers were streamed through slots.
    pub is_streamed: bool,
    /// The cap on bytes in slots; `None` without one.
    pub budget_bytes: Option<u64>,
    /// The most bytes in slots at any moment.
    pub peak_slot_bytes: u64,
    /// Bytes of all weights as stored.
    pub model_bytes: u64,
    /// Layers that are streamed.
    pub num_weights: usize,
    /// Layers that stay in place by plan.
    pub resident_weights: usize,
    /// Layers loaded.
    pub loads: u64,
    /// Of those, before anybody asked.
    pub loads_ahead: u64,
    /// Times a layer was in place when it was needed.
    pub hits: u64,
    /// Layers removed to make room.
    pub evictions: u64,
    /// Bytes of all loads.
    pub bytes_loaded: u64,
    /// Times the computation waited for a layer.
    pub waits: u64,
    /// Nanoseconds spent in those.
    pub stall_ns: u64,
}

impl Residency {
    /// What has happened to the weights of a model so far.
    #[must_use]
    pub fn of(base: &BaseWeights) -> Self {
        let Some(streamer) = &base.streamer else {
            return Self {
                model_bytes: base.num_bytes,
                ..Self::default()
            };
        };
        let stats = streamer.stats();
        Self {
            is_streamed: true,
            budget_bytes: Some(stats.budget_bytes).filter(|budget| *budget != u64::MAX),
            peak_slot_bytes: stats.peak_slot_bytes,
            model_bytes: base.num_bytes,
            num_weights: stats.num_weights,
            resident_weights: stats.resident_weights,
            loads: stats.loads,
            loads_ahead: stats.loads_ahead,
            hits: stats.hits,
            evictions: stats.evictions,
            bytes_loaded: stats.bytes_loaded,
            waits: stats.waits,
            stall_ns: stats.stall_ns,
        }
    }

    /// One or two lines of text.
    #[must_use]
    pub fn describe(&self) -> String {
        if !self.is_streamed {
            let bytes = grouped(self.model_bytes);
            return format!(
                "residency: {bytes} bytes of weights read in place from the file, no budget"
            );
        }
        let budget = self.budget_bytes.map_or_else(|| "none".into(), grouped);
        format!(
            "residency: budget {budget}, peak {} of {} bytes in slots, {} of {} layers resident\n           \
             {} loads ({} ahead, {} bytes), {} hits, {} evictions, {} waits ({:.1} ms)",
            grouped(self.peak_slot_bytes),
            grouped(self.model_bytes),
            self.resident_weights,
            self.num_weights,
            grouped(self.loads),
            grouped(self.loads_ahead),
            grouped(self.bytes_loaded),
            grouped(self.hits),
            grouped(self.evictions),
            grouped(self.waits),
            self.stall_ns as f64 / 1e6,
        )
    }
}

/// A number with its thousands set apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
