//! Baking patch sets into resident layers, and restoring the base bit for bit.
//!
//! The base itself is kept: the merged weight is laid over it and dropped again by [`restore`], so
//! restoring cannot round. Merged weights cost their own dense bytes beside the base.

use std::{collections::BTreeMap, sync::Arc};

use overglaze_patches::{PatchSet, tensor_bytes};

use crate::{
    Error, LayerTree, LayerWeights, MountReport, MountedPatch, PatchStack, PatchedLayer, Weight,
    dense, fit::fit, mount::check_names,
};

/// Merges `sets` (name, set, strength) into the layers of `tree`: `W' = W + Σ strength · ΔW`, every ΔW
/// taken against the base, computed in f32 and rounded once to the dtype the base computes in; a bias keeps
/// its own.
///
/// # Errors
/// [`Error::Mounted`] while anything is mounted by sidecar, [`Error::AlreadyMerged`],
/// [`Error::MergeStreamed`], or as [`mount`](crate::mount()); the model is then as it was.
pub fn merge(
    tree: &mut impl LayerTree,
    sets: &[(&str, &PatchSet, f32)],
) -> Result<Vec<MountReport>, Error> {
    check_bare(tree)?;
    check_names(tree, &[], sets)?;
    let (mut stacks, mut reports) = (BTreeMap::<String, PatchStack>::new(), Vec::new());
    for (name, set, strength) in sets {
        let fitted = fit(&*tree, name, set)?;
        reports.push(fitted.report);
        for (path, patch) in fitted.patches {
            let mounted = MountedPatch::new((*name).into(), patch, *strength);
            stacks.entry(path).or_default().push(mounted);
        }
    }
    let mut merged = baked(tree, &stacks)?;
    tree.visit_layers_mut(&mut |path, layer| {
        if let Some(weights) = merged.remove(path) {
            let bias = weights.bias.as_ref().map_or(0, tensor_bytes);
            let bytes = weights.weight.num_bytes() + bias;
            layer.traffic().count_write(bytes);
            layer.state_mut().merged = Some(Arc::new(weights));
        }
    });
    Ok(reports)
}

/// Takes every merged weight off; the base is again what it was, bit for bit.
pub fn restore(tree: &mut impl LayerTree) {
    tree.visit_layers_mut(&mut |_, layer| layer.state_mut().merged = None);
}

fn check_bare(tree: &impl LayerTree) -> Result<(), Error> {
    let mut result = Ok(());
    tree.visit_layers(&mut |path, layer| {
        if result.is_err() {
            return;
        }
        if layer.num_patches() > 0 {
            result = Err(Error::Mounted {
                operation: "merging",
                layer: path.into(),
            });
        } else if layer.state().merged.is_some() {
            result = Err(Error::AlreadyMerged { layer: path.into() });
        }
    });
    result
}

fn baked(
    tree: &impl LayerTree,
    stacks: &BTreeMap<String, PatchStack>,
) -> Result<BTreeMap<String, LayerWeights>, Error> {
    let (mut merged, mut result) = (BTreeMap::new(), Ok(()));
    tree.visit_layers(&mut |path, layer| {
        let Some(stack) = stacks.get(path).filter(|_| result.is_ok()) else {
            return;
        };
        match bake(path, layer, stack) {
            Ok(weights) => {
                merged.insert(path.to_owned(), weights);
            }
            Err(error) => result = Err(error),
        }
    });
    result.map(|()| merged)
}

fn bake(path: &str, layer: &dyn PatchedLayer, stack: &PatchStack) -> Result<LayerWeights, Error> {
    if !layer.is_resident() {
        return Err(Error::MergeStreamed { layer: path.into() });
    }
    let device = layer.device();
    let (weight, bias) = layer.base_values(&device)?;
    let delta = stack.delta(&device, layer.weight_shape(), || {
        Ok::<_, Error>(weight.clone())
    })?;
    let weight = match delta.weight {
        Some(delta) => weight + delta,
        None => weight,
    };
    let bias = match (bias, delta.bias) {
        (Some(bias), Some(delta)) => Some(bias + delta),
        (bias, delta) => bias.or(delta),
    };
    let dtype = layer.base_dtype();
    Ok(LayerWeights {
        weight: Weight::Dense(dense::cast(weight, dtype)),
        bias: bias.map(|bias| dense::cast(bias, layer.bias_dtype())),
    })
}
