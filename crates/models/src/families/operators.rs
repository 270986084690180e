//! Which layer a tensor belongs to and what that layer does, as far as name and shape tell.

use overglaze_patches::LayerShape;

/// The path of the layer that `tensor` is the weight of, and the name of its bias; `None` for a bias and for
/// what is no parameter.
pub(super) fn layer_of(tensor: &str) -> Option<(&str, String)> {
    if let Some(path) = tensor.strip_suffix(IN_PROJECTION) {
        return Some((
            tensor.strip_suffix("_weight").unwrap_or(path),
            format!("{path}.in_proj_bias"),
        ));
    }
    let is_counter = COUNTERS.iter().any(|name| tensor.ends_with(name));
    match tensor.rsplit_once('.') {
        Some((path, "weight" | "scale")) => Some((path, format!("{path}.bias"))),
        Some((_, "bias" | "in_proj_bias")) => None,
        _ if is_counter || tensor.starts_with(AVERAGED) => None,
        _ => Some((tensor, String::new())),
    }
}

/// The layer at `path` whose weight `tensor` is of shape `dims`; `None` for a weight no machine can address and
/// for one without values or axes.
pub(super) fn layer_shape(path: &str, tensor: &str, dims: &[usize]) -> Option<LayerShape> {
    let num_values = dims
        .iter()
        .try_fold(1_usize, |product, size| product.checked_mul(*size))?;
    if dims.is_empty() || num_values == 0 {
        return None;
    }
    if path == tensor {
        return Some(LayerShape::parameter(dims));
    }
    Some(match dims {
        [d_model] => LayerShape::norm(*d_model),
        [rows, columns] if is_embedding(path) => LayerShape::embedding(*rows, *columns),
        [d_output, d_input] => LayerShape::linear(*d_output, *d_input),
        dims => LayerShape::conv(dims, 1),
    })
}

fn is_embedding(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path);
    EMBEDDINGS.contains(&name)
}

/// Query, key and value of `PyTorch`'s attention, in one parameter.
const IN_PROJECTION: &str = ".in_proj_weight";

/// Tables that are looked up by row.
const EMBEDDINGS: [&str; 9] = [
    "embed",
    "embed_tokens",
    "embed_positions",
    "pos_embed",
    "position_embedding",
    "relative_attention_bias",
    "shared",
    "token_embedding",
    "wte",
];

/// Buffers that are no parameters.
const COUNTERS: [&str; 4] = [
    "num_batches_tracked",
    "position_ids",
    "running_mean",
    "running_var",
];

/// A second copy of the weights that training averages.
const AVERAGED: &str = "model_ema.";
