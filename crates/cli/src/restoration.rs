//! Whether the base is what it was: its stored bytes by hash, and its output bit by bit.

use overglaze_core::fingerprint::Fingerprint;

use crate::Latents;

/// What a base is, at one moment.
#[derive(Clone, Debug)]
pub struct BaseState {
    /// Hash of the stored bytes of every layer.
    pub fingerprint: Fingerprint,
    /// Output without any LoRA.
    pub output: Latents,
}

/// What became of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restoration {
    /// Bytes and output are the same.
    Identical,
    /// Stored bytes differ.
    BytesChanged,
    /// Bytes are the same, but the output is not.
    OutputChanged,
}

impl Restoration {
    /// Compares a base with what it was; a single bit counts.
    #[must_use]
    pub fn between(before: &BaseState, after: &BaseState) -> Self {
        let bits = |latents: &Latents| {
            latents
                .values()
                .iter()
                .map(|v| v.to_bits())
                .collect::<Vec<_>>()
        };
        let is_same_output = before.output.shape() == after.output.shape()
            && bits(&before.output) == bits(&after.output);
        if before.fingerprint != after.fingerprint {
            Self::BytesChanged
        } else if is_same_output {
            Self::Identical
        } else {
            Self::OutputChanged
        }
    }

    /// What differs, in words; `None` when nothing does.
    #[must_use]
    pub fn difference(self) -> Option<&'static str> {
        match self {
            Self::Identical => None,
            Self::BytesChanged => Some("the hash of its stored bytes"),
            Self::OutputChanged => Some("its output"),
        }
    }
}
