//! Differences of a norm's scale and shift.
//!
//! `ΔW = w_norm`, `Δb = b_norm`, both `[d_model]`. Nothing is scaled.
//!
//! LyCORIS, `modules/norms.py`.

use std::sync::Arc;

use burn::tensor::Device;

use crate::{KindDocs, Patch, PatchError, PatchKind, TensorGroup, difference::Difference};

inventory::submit! {
    PatchKind::new(KIND, &[&[SCALE], &[SHIFT]], load)
        .with_optional(&[SCALE, SHIFT])
        .with_docs(KindDocs {
            formula: "ΔW = w_norm, Δb = b_norm",
            layers: "norm",
            strength: "proportional",
            source: "LyCORIS, modules/norms.py",
        })
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let patch = Difference::take(KIND, &mut group, [SCALE, SHIFT], device)?;
    Ok(Arc::new(patch.for_norms()))
}

const KIND: &str = "norm";
const SCALE: &str = "w_norm";
const SHIFT: &str = "b_norm";
