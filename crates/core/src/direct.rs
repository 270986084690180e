//! Merged weights: `W' = W + Σ strength · ΔW` of a layer's direct patches, in f32, rounded once.
//!
//! They are always computed from the base and from all direct patches at once, in the order of the adapters'
//! names. So the bits depend on what is mounted and not on how it came about: taking one off again leaves
//! those of the others, and taking the last one off drops the copy.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use overglaze_patches::{LayerShape, LowRank, tensor_bytes};
use overglaze_quant::kernels::is_host;

use crate::{
    Error, LayerWeights, PatchStack, PatchedLayer, Weight, dense,
    residual::{BaseValues, Residual, Summand},
    sums::{add_widened, joined},
};

/// The merged parameters of `layer` under the direct patches of `stack`; `None` where no direct patch has an
/// effect.
pub(crate) fn merged(
    layer: &(impl PatchedLayer + ?Sized),
    stack: &PatchStack,
) -> Result<Option<Arc<LayerWeights>>, Error> {
    let device = layer.device();
    let patches = stack.direct_summands(&device);
    if patches.is_empty() {
        return Ok(None);
    }
    let mut merged = match tiled(layer, &patches, &device)? {
        Some(merged) => merged,
        None => plain(layer, &patches, &device)?,
    };
    // The products of a packed base read a narrow type in place; that of a tensor would be widened in every pass.
    let is_packed = |base: &LayerWeights| matches!(base.weight, Weight::Packed(_));
    if is_host(&device) && layer.weights_in_place().is_some_and(is_packed) {
        merged.weight = merged.weight.packed();
    }
    Ok(Some(Arc::new(merged)))
}

/// The same without ever holding the base or ΔW as a whole, where that can be done.
fn tiled(
    layer: &(impl PatchedLayer + ?Sized),
    patches: &[Summand],
    device: &Device,
) -> Result<Option<LayerWeights>, Error> {
    let shape = layer.layer_shape();
    let Some(base) = layer.weights_in_place() else {
        return Ok(None);
    };
    let Weight::Packed(packed) = &base.weight else {
        return Ok(None);
    };
    let Some(LowRank { up, down }) = thin_sum(patches, &shape) else {
        return Ok(None);
    };
    if !is_host(device) {
        return Ok(None);
    }
    let weight = packed.plus_product(up, down, layer.base_dtype().into());
    layer.traffic().count_decode();
    let bias = base.bias.clone();
    let bias = bias.map(|bias| dense::values(bias, device, layer.traffic()));
    let delta = Residual::bias(patches, &shape, |_| {
        Ok(BaseValues {
            weight: None,
            bias: bias.clone(),
        })
    })?;
    Ok(Some(LayerWeights {
        weight: Weight::Packed(weight),
        bias: sum(bias, delta).map(|bias| dense::cast(bias, layer.bias_dtype())),
    }))
}

/// The sum of the patches' ΔW as one pair of factors; `None` where one has none, or is wider than the base.
fn thin_sum(patches: &[Summand], shape: &LayerShape) -> Option<LowRank> {
    let factors = patches.iter().map(|(patch, strength)| {
        let fits = patch.d_input(shape) == shape.d_input();
        Some((patch.low_rank().filter(|_| fits)?, *strength))
    });
    joined(factors.collect::<Option<Vec<_>>>()?)
}

/// The plain way: the base and ΔW as whole matrices in f32.
fn plain(
    layer: &(impl PatchedLayer + ?Sized),
    patches: &[Summand],
    device: &Device,
) -> Result<LayerWeights, Error> {
    let (weight, bias) = layer.base_values(device)?;
    let delta = Residual::dense(patches, &layer.layer_shape(), |_| {
        Ok(BaseValues {
            weight: Some(weight.clone()),
            bias: bias.clone(),
        })
    })?;
    let mut merged = Some(weight);
    if let Some(delta) = delta.weight {
        add_widened(&mut merged, delta);
    }
    let weight = merged.expect("the base is the first term");
    let bias = sum(bias, delta.bias);
    Ok(LayerWeights {
        weight: Weight::Dense(dense::cast(weight, layer.base_dtype())),
        bias: bias.map(|bias| dense::cast(bias, layer.bias_dtype())),
    })
}

fn sum(bias: Option<Tensor<1>>, delta: Option<Tensor<1>>) -> Option<Tensor<1>> {
    match (bias, delta) {
        (Some(bias), Some(delta)) => Some(bias + delta),
        (bias, delta) => bias.or(delta),
    }
}

/// Bytes of merged parameters.
pub(crate) fn num_bytes(merged: &LayerWeights) -> usize {
    merged.weight.num_bytes() + merged.bias.as_ref().map_or(0, tensor_bytes)
}
