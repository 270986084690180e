//! Whether the axes of a residual are those of a layer's weight.
//!
//! Files state axes of size 1 or leave them out: the factors of a 1×1 convolution are `[d_output, d_input]` or
//! `[d_output, d_input, 1, 1]`, and some kinds flatten kernels to `[d_output, fan_in]`. Other axes of as many
//! elements are another weight's.

use crate::{LayerShape, Operator, PatchError, TensorGroup};

/// That a residual of shape `dims` is for the weight of `layer`: the same axes, or the weight as a matrix.
///
/// # Errors
/// [`PatchError::DoesNotFit`], or [`PatchError::OtherAxes`] where the matrices agree and the axes do not.
pub(crate) fn check_weight(
    kind: &str,
    dims: &[usize],
    layer: &LayerShape,
) -> Result<(), PatchError> {
    if layer.operator() == Operator::Parameter && stated(dims) == stated(layer.dims()) {
        return Ok(());
    }
    let patch = matrix(dims);
    if patch != layer.matrix() {
        return Err(PatchError::DoesNotFit {
            kind: kind.into(),
            patch,
            base: layer.dims().into(),
        });
    }
    if dims.len() <= 2 || up_to_ones(dims) == up_to_ones(layer.dims()) {
        return Ok(());
    }
    Err(PatchError::OtherAxes {
        kind: kind.into(),
        patch: dims.into(),
        base: layer.dims().into(),
    })
}

/// That `layer` has a bias, or may be given one, of `length` elements.
///
/// # Errors
/// [`PatchError::NoMeaning`], or [`PatchError::DoesNotFit`] for another length.
pub(crate) fn check_bias(kind: &str, length: usize, layer: &LayerShape) -> Result<(), PatchError> {
    if matches!(layer.operator(), Operator::Embedding | Operator::Parameter) {
        return Err(PatchError::NoMeaning {
            kind: kind.into(),
            operator: layer.operator(),
            why: "it changes a bias, which only layers that add one have".into(),
        });
    }
    if length != layer.d_output() {
        return Err(PatchError::DoesNotFit {
            kind: kind.into(),
            patch: [length, layer.fan_in()],
            base: layer.dims().into(),
        });
    }
    Ok(())
}

/// That `layer` multiplies with a matrix, for kinds whose factors mean nothing else.
///
/// # Errors
/// [`PatchError::NoMeaning`].
pub(crate) fn check_is_matrix(kind: &str, layer: &LayerShape) -> Result<(), PatchError> {
    if layer.is_matrix() {
        return Ok(());
    }
    Err(PatchError::NoMeaning {
        kind: kind.into(),
        operator: layer.operator(),
        why: "its factors are for a weight matrix".into(),
    })
}

/// That a weight of `shape` has elements: no layer is without inputs or outputs, and in a reshape Burn takes a
/// size of 0 for "as before".
///
/// # Errors
/// [`PatchError::Inconsistent`].
pub(crate) fn check_size(group: &TensorGroup, shape: [usize; 2]) -> Result<(), PatchError> {
    if shape.contains(&0) {
        let why = format!("the patch is for a weight of shape {shape:?}, which has no values");
        return Err(group.inconsistent(why));
    }
    Ok(())
}

/// `dims` as `[d_output, fan_in]`.
fn matrix(dims: &[usize]) -> [usize; 2] {
    let d_output = dims.first().copied().unwrap_or(1);
    [d_output, dims.iter().skip(1).product()]
}

/// `dims` without sizes of 1 at the end.
fn up_to_ones(dims: &[usize]) -> &[usize] {
    let length = dims.iter().rposition(|size| *size != 1);
    &dims[..length.map_or(0, |last| last + 1)]
}

/// `dims` without sizes of 1 at either end.
fn stated(dims: &[usize]) -> &[usize] {
    let dims = up_to_ones(dims);
    let start = dims.iter().position(|size| *size != 1);
    &dims[start.unwrap_or(0)..]
}
