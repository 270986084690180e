//! What rotations of output rows have in common, in one step or in butterfly factors: `W′ = rescale · R · W`, with
//! `‖Q‖ ≤ alpha · d_output`.

use burn::tensor::{Device, Tensor};

use crate::{LayerShape, PatchError, TensorGroup, patch::wide, rotation::check_rotates};

/// Largest norm of Q that `alpha` allows; without one, or with 0, any.
pub(crate) fn limit(group: &mut TensorGroup, d_output: usize) -> Result<f64, PatchError> {
    let alpha = group.take_finite(ALPHA)?.filter(|alpha| *alpha > 0.0);
    Ok(alpha.map_or(f64::INFINITY, |alpha| f64::from(alpha) * d_output as f64))
}

/// The factors on rows, in f32.
pub(crate) fn take_rescale(
    group: &mut TensorGroup,
    d_output: usize,
    device: &Device,
) -> Result<Option<Tensor<1>>, PatchError> {
    if !group.has(RESCALE) {
        return Ok(None);
    }
    let (rescale, _) = group.take_vector(RESCALE, device)?;
    let [found] = rescale.dims();
    if found != d_output {
        let why = format!("`{RESCALE}` has {found} values, but the blocks have {d_output} rows");
        return Err(group.inconsistent(why));
    }
    Ok(Some(wide(&rescale)))
}

/// Refuses layers whose weight a rotation has no meaning on, and those that have other rows than the blocks.
pub(crate) fn check_rows(kind: &str, layer: &LayerShape, rows: usize) -> Result<(), PatchError> {
    check_rotates(kind, layer)?;
    if rows == layer.d_output() {
        return Ok(());
    }
    Err(PatchError::DoesNotFit {
        kind: kind.into(),
        patch: [rows, layer.fan_in()],
        base: layer.dims().into(),
    })
}

/// `rescale · (weight + turned) − weight`, with factors on rows `[d_output]` where there are any.
pub(crate) fn rescaled_change(
    rescale: Option<&Tensor<1>>,
    weight: &Tensor<2>,
    turned: Tensor<2>,
) -> Tensor<2> {
    let Some(rescale) = rescale else {
        return turned;
    };
    let rescale = rescale.clone().unsqueeze_dim::<2>(1);
    turned * rescale.clone() + weight.clone() * rescale.sub_scalar(1.0)
}

pub(crate) const ALPHA: &str = "alpha";
pub(crate) const RESCALE: &str = "rescale";
