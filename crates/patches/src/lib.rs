//! Weight patches (LoRA family) as self-registering plugins.
//!
//! A [`Patch`] is a residual on the parameters of one layer. Its [`PatchKind`] registers itself
//! through `inventory`; [`registry::load`] finds the kind from the *exact* set of keys a layer has in
//! the file. [`Dialect`]s turn the spellings trainers use into canonical suffixes and target names,
//! and [`PatchSet`] is one adapter file, read and accounted for key by key.

mod base;
mod container;
pub mod dialects;
mod error;
pub mod files;
mod finite;
mod gather;
mod group;
pub mod kinds;
mod patch;
mod peft;
pub mod registry;
mod row_slice;
mod rows;
mod set;
mod sparse;
mod stored;

pub use base::{BaseAccess, BaseLayer};
pub use dialects::{Dialect, FileKey, TargetName};
pub use error::PatchError;
pub use group::TensorGroup;
#[doc(hidden)]
pub use inventory;
pub use patch::{Patch, tensor_bytes};
pub use peft::AdapterConfig;
pub use registry::PatchKind;
pub use row_slice::slice_rows;
pub use rows::{RowPart, RowRanges};
pub use set::{PatchEntry, PatchSet, RefusedGroup};
pub use stored::stored_tensor;
