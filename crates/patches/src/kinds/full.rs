//! A full difference of the weight, of the bias, or of both.
//!
//! `ΔW = diff`, `Δb = diff_b`; `diff` has the weight's shape, `diff_b [d_output]`. Nothing is scaled.
//!
//! LyCORIS, `modules/full.py`; `ComfyUI`, `comfy/lora.py`.

use std::sync::Arc;

use burn::tensor::Device;

use crate::{KindDocs, Patch, PatchError, PatchKind, TensorGroup, difference::Difference};

inventory::submit! {
    PatchKind::new(KIND, &[&[WEIGHT], &[BIAS]], load)
        .with_optional(&[WEIGHT, BIAS])
        .with_docs(KindDocs {
            formula: "ΔW = diff, Δb = diff_b",
            layers: "all; diff_b on layers that add a bias",
            strength: "proportional",
            source: "LyCORIS, modules/full.py; ComfyUI, comfy/lora.py",
        })
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let patch = Difference::take(KIND, &mut group, [WEIGHT, BIAS], device)?;
    Ok(Arc::new(patch))
}

const KIND: &str = "full";
const WEIGHT: &str = "diff";
const BIAS: &str = "diff_b";
