//! Layers whose weights stay frozen, packed or streamed, with patches laid over them at execution time.
//!
//! A wrapper such as [`PatchedLinear`] takes the place of its Burn layer. Its base weight is a Burn
//! parameter, a packed matrix, or a lease from a streamer; its patches are removable residuals that
//! never rewrite the base. [`mount()`], [`unmount`], [`reweight`] and [`swap`] lay a whole adapter over a
//! [`LayerTree`] by name and account for every key of its file.

pub mod adapter_file;
mod bridge;
mod bridge_layer;
mod cache_room;
mod change;
mod conv;
mod conv_layout;
mod conv_ranks;
mod dense;
mod direct;
mod embedding;
mod error;
pub mod fingerprint;
mod fit;
mod frozen;
mod group_norm;
mod layer;
mod layer_base;
mod layer_norm;
mod layer_spec;
mod linear;
mod loader;
mod loader_layers;
mod merge;
mod merge_file;
mod module_file;
mod module_layers;
mod mount;
mod mounted;
mod names;
mod open;
mod parameter;
mod placement;
mod report;
mod residual;
mod rewrite;
mod rms_norm;
mod scale_shift;
mod source_tensor;
mod stack;
mod stored_weights;
mod strengths;
mod sums;
mod tensor_spec;
mod traffic;
mod tree;
mod weight;

pub use bridge::{PatchReparam, PatchedModule};
pub use conv::{PatchedConv, PatchedConv1d, PatchedConv2d, PatchedConv3d};
pub use conv_layout::ConvLayout;
pub use embedding::PatchedEmbedding;
pub use error::Error;
pub use fit::{Fitted, LayerShapes, fit_shapes};
pub use frozen::{FrozenWeight, LayerWeights, StreamedWeight, WeightRef};
pub use group_norm::PatchedGroupNorm;
pub use layer::{LayerLimits, LayerState, PatchedLayer};
pub use layer_norm::PatchedLayerNorm;
pub use layer_spec::{LayerSpec, LoadedLayer};
pub use linear::{PatchedLinear, Path};
pub use loader::{BaseWeights, LayerLoader, LoaderConfig};
pub use merge::{merge, restore};
pub use merge_file::{FileLayer, FileLayers, FileMerge};
pub use module_file::{ModuleFileReport, load_module};
pub use mount::{Mounting, mount, reweight, swap, unmount};
pub use mounted::{Footprint, MountedAdapter, MountedStrength, mounted};
pub use names::{NameTable, Piece};
pub use open::open;
pub use parameter::PatchedParameter;
pub use placement::Placement;
pub use report::{KeyOutcome, KeyReport, MountReport};
pub use rewrite::{Container, FileRewrite, KeptFor, Outcome, PackRules, RewrittenWeight};
pub use rms_norm::{NormRounding, PatchedRmsNorm};
pub use stack::{MountedPatch, PatchStack};
pub use stored_weights::{StoredWeight, packed_weight, stored_weights};
pub use strengths::Strengths;
pub use traffic::Traffic;
pub use tree::LayerTree;
pub use weight::Weight;

/// The README's example, run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
