//! The promises of a patch, by the method that states them, and one that was not kept.

use std::fmt;

/// A promise of [`Patch`](crate::Patch) that a patch did not keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {kind} patch on {layer} breaks the promise of {promise}: {found}")]
#[non_exhaustive]
pub struct Nonconformance {
    /// Kind of the patch.
    pub kind: String,
    /// The layer it was asked about.
    pub layer: String,
    /// The promise.
    pub promise: Promise,
    /// What was found, and what was promised.
    pub found: String,
}

/// What a patch promises, by the method that states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Promise {
    /// Data and layers of any shape get an answer or an error.
    NoPanic,
    /// A fitting layer is accepted, and others are refused with a reason.
    Check,
    /// A patch of [`crate::BaseAccess::Shape`] needs no values, one of [`crate::BaseAccess::Weight`] says when they are missing.
    BaseAccess,
    /// ΔW is finite, f32 and as large as the weight.
    DeltaWeight,
    /// The factors' product is ΔW.
    LowRank,
    /// The sidecar of a linear layer adds what ΔW would.
    SidecarLinear,
    /// The sidecar of a convolution adds what ΔW would.
    SidecarConv,
    /// Δb is finite, f32, one number an output, and there when it is announced, whether or not the layer has a bias.
    DeltaBias,
    /// What is replaced does not depend on the base or the strength.
    Replaces,
    /// The patch at a strength is itself at 1, and has a residual that is continuous in the strength.
    AtStrength,
    /// A cut patch has the rows of the whole one.
    SliceRows,
    /// A moved patch is the same one, and the one it was made from unchanged.
    ToDevice,
    /// Its tensors have bytes.
    NumBytes,
}

impl fmt::Display for Promise {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoPanic => "all methods never to panic",
            Self::Check => "`check`",
            Self::BaseAccess => "`base_access`",
            Self::DeltaWeight => "`delta_weight`",
            Self::LowRank => "`low_rank`",
            Self::SidecarLinear => "`sidecar_linear`",
            Self::SidecarConv => "`sidecar_conv`",
            Self::DeltaBias => "`delta_bias`",
            Self::Replaces => "`replaces`",
            Self::AtStrength => "`at_strength`",
            Self::SliceRows => "`slice_rows`",
            Self::ToDevice => "`to_device`",
            Self::NumBytes => "`num_bytes`",
        })
    }
}
