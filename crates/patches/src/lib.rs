//! Weight patches (LoRA family) as self-registering plugins.
//!
//! A [`Patch`] is a residual on the parameters of one layer. Its [`PatchKind`] registers itself
//! through `inventory`; [`registry::load`] finds the kind from the *exact* set of keys a layer has in
//! the file. [`Dialect`]s turn the spellings trainers use into canonical suffixes and target names,
//! and [`PatchSet`] is one adapter file, read and accounted for key by key.

mod added;
mod axes;
mod base;
pub mod conformance;
mod container;
mod conv;
pub mod dialects;
mod difference;
mod error;
mod factors;
pub mod files;
mod finite;
mod gather;
mod group;
pub mod kinds;
mod layer_shape;
mod low_rank;
mod notes;
mod patch;
mod peft;
pub mod registry;
mod rotation;
mod row_rotation;
mod row_slice;
mod rows;
mod scaled;
mod set;
mod shared_keys;
mod sparse;
mod stored;
mod values;

pub use base::{BaseAccess, BaseLayer};
pub use conv::{ConvGeometry, ConvInput, Feature};
pub use dialects::{Component, Dialect, FileKey, TargetName, TextEncoder};
pub use error::PatchError;
pub use group::TensorGroup;
#[doc(hidden)]
pub use inventory;
pub use layer_shape::{LayerShape, Operator};
pub use low_rank::LowRank;
pub use patch::{Patch, Replaced, moved, tensor_bytes, wide};
pub use peft::{AdapterConfig, LayerConfig, OftConfig};
pub use registry::{Build, KindDocs, PatchKind};
pub use row_slice::slice_rows;
pub use rows::{RowPart, RowRanges};
pub use scaled::at_strength;
pub use set::{PatchEntry, PatchSet, RefusedGroup};
pub use stored::stored_tensor;
