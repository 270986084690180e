//! A difference of the bias beside another kind's keys, as files for video models have them.
//!
//! `Δb += diff_b`, `diff_b [d_output]`; it is not scaled by the other kind's alpha.
//!
//! `ComfyUI`, `comfy/lora.py`.

use std::sync::Arc;

use burn::tensor::Device;

use crate::{KindDocs, Patch, PatchError, PatchKind, TensorGroup, added::Added};

inventory::submit! {
    PatchKind::wrapper("dense-bias", &[&[BIAS]], wrap)
        .with_docs(KindDocs {
            formula: "Δb += diff_b, beside the keys of any other kind",
            layers: "layers that add a bias",
            strength: "proportional",
            source: "ComfyUI, comfy/lora.py",
        })
}

fn wrap(
    patch: Arc<dyn Patch>,
    mut group: TensorGroup,
    device: &Device,
) -> Result<Arc<dyn Patch>, PatchError> {
    let bias = group.take::<1>(BIAS, device)?;
    Ok(Added::bias(patch, &bias))
}

const BIAS: &str = "diff_b";
