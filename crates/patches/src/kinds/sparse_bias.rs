//! The sparse residual that LyCORIS writes beside another kind's keys, or alone.
//!
//! The triple `bias_indices`, `bias_values`, `bias_size` in coordinate form: a Δb where `bias_size` has one
//! dimension, else a ΔW. Kinds with a scale of their own read the triple themselves and scale it; beside the
//! others and alone it is taken as it stands.
//!
//! LyCORIS, `utils/__init__.py`, `extract_diff` with `use_sparse_bias`.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType};

use crate::{
    KindDocs, LayerShape, Patch, PatchError, PatchKind, TensorGroup, added::Added, sparse::KEYS,
};

inventory::submit! {
    PatchKind::new(KIND, &[&KEYS], load).with_docs(DOCS)
}

inventory::submit! {
    PatchKind::wrapper("sparse-bias-beside", &[&KEYS], wrap).with_docs(DOCS)
}

/// A patch that changes nothing, for the residual to be laid on.
#[derive(Clone, Debug)]
struct Nothing;

impl Patch for Nothing {
    fn kind(&self) -> &str {
        KIND
    }

    fn check(&self, _layer: &LayerShape) -> Result<(), PatchError> {
        Ok(())
    }

    fn slice_rows(&self, _rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        Some(Arc::new(Self))
    }

    fn to_device(&self, _device: &Device, _dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self)
    }

    fn num_bytes(&self) -> usize {
        0
    }
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    Added::sparse(Arc::new(Nothing), &mut group, device)
}

fn wrap(
    patch: Arc<dyn Patch>,
    mut group: TensorGroup,
    device: &Device,
) -> Result<Arc<dyn Patch>, PatchError> {
    Added::sparse(patch, &mut group, device)
}

const KIND: &str = "sparse-bias";
const DOCS: KindDocs = KindDocs {
    formula: "Δb or ΔW += the values at the coordinates, by the number of axes in bias_size",
    layers: "all; a Δb on layers that add a bias",
    strength: "proportional",
    source: "LyCORIS, utils/__init__.py, extract_diff with use_sparse_bias",
};
