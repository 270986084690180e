//! Layers whose weights stay frozen, packed or streamed, with patches laid over them at execution time.
//!
//! A wrapper such as [`PatchedLinear`] takes the place of its Burn layer. Its base weight is a Burn
//! parameter, a packed matrix, or a lease from a streamer; its patches are removable residuals that
//! never rewrite the base. [`mount()`], [`unmount`], [`reweight`] and [`swap`] lay a whole adapter over a
//! [`LayerTree`] by name and account for every key of its file.

pub mod adapter_file;
mod bridge;
mod dense;
mod error;
pub mod fingerprint;
mod fit;
mod frozen;
mod layer;
mod layer_norm;
mod layer_spec;
mod linear;
mod loader;
mod merge;
mod module_file;
mod mount;
mod names;
mod report;
mod rms_norm;
mod source_tensor;
mod stack;
mod traffic;
mod tree;
mod weight;

pub use bridge::{PatchReparam, PatchReparameterizer};
pub use error::Error;
pub use fit::fit_report;
pub use frozen::{FrozenWeight, LayerWeights, StreamedWeight, WeightRef};
pub use layer::{LayerState, PatchedLayer};
pub use layer_norm::PatchedLayerNorm;
pub use layer_spec::{LayerSpec, LoadedLayer};
pub use linear::{PatchedLinear, Path};
pub use loader::{BaseWeights, LayerLoader, LoaderConfig};
pub use merge::{merge, restore};
pub use module_file::{ModuleFileReport, load_module};
pub use mount::{MountedAdapter, Placement, mount, mounted, reweight, swap, unmount};
pub use names::{NameTable, Piece};
pub use report::{KeyOutcome, KeyReport, MountReport};
pub use rms_norm::PatchedRmsNorm;
pub use stack::{MountedPatch, PatchStack};
pub use traffic::Traffic;
pub use tree::LayerTree;
pub use weight::Weight;

/// The README's example, run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
