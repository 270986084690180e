//! Counters of base bytes written, moved and decoded, kept where the writes and the moves happen.

use std::sync::atomic::{AtomicU64, Ordering};

/// What has happened to the base weights of a model since it was loaded.
#[derive(Debug, Default)]
pub struct Traffic {
    written_bytes: AtomicU64,
    moved_bytes: AtomicU64,
    num_moves: AtomicU64,
    num_decodes: AtomicU64,
}

impl Traffic {
    /// Bytes of weights written to stand over base weights, by a merge; a restore drops them and writes
    /// nothing.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of weights copied to another device: for a forward pass, for a patch or a caller that wants the
    /// values there, or by a load onto a device with memory of its own. Reads into host memory are not
    /// moves.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes.load(Ordering::Relaxed)
    }

    /// How often a base tensor was copied to another device.
    #[must_use]
    pub fn num_moves(&self) -> u64 {
        self.num_moves.load(Ordering::Relaxed)
    }

    /// How often a packed base weight was decoded into a dense copy: for patches that read its values, for a
    /// merge, for a caller, or for a device that computes on dense values. A product that reads the packed
    /// bytes in place makes no copy and counts nothing.
    #[must_use]
    pub fn num_decodes(&self) -> u64 {
        self.num_decodes.load(Ordering::Relaxed)
    }

    pub(crate) fn count_decode(&self) {
        self.num_decodes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_write(&self, bytes: usize) {
        self.written_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_move(&self, bytes: usize) {
        self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.num_moves.fetch_add(1, Ordering::Relaxed);
    }
}
