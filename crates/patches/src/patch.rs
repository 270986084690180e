//! The trait every patch kind implements.

use std::{fmt, ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{BaseAccess, BaseLayer, PatchError};

/// A removable modification of one layer, expressed as a residual on its parameters.
///
/// Everything is stated at strength 1; the layer multiplies by the strength. Residuals are taken
/// against the *base* weight, so patches of one layer commute.
///
/// Residuals ([`delta_weight`](Self::delta_weight), [`delta_bias`](Self::delta_bias)) come in f32
/// whatever the patch's tensors are kept in: f16 factors of 1e-4 have a product that f16 cannot
/// hold. A sidecar answers in the dtype of its input.
pub trait Patch: fmt::Debug + Send + Sync {
    /// Name of the kind, for reports.
    fn kind(&self) -> &str;

    /// What [`delta_weight`](Self::delta_weight) needs to see of the base.
    fn base_access(&self) -> BaseAccess {
        BaseAccess::Shape
    }

    /// Whether the patch fits a base weight of `shape` `[d_output, fan_in]`; asked once, at mount.
    ///
    /// # Errors
    /// [`PatchError::DoesNotFit`] naming what was found and what was expected.
    fn check(&self, shape: [usize; 2]) -> Result<(), PatchError>;

    /// ΔW `[d_output, fan_in]` in f32; `None` when the patch leaves the weight alone.
    ///
    /// # Errors
    /// [`PatchError::BaseUnavailable`] when the patch needs values and `base` has none.
    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError>;

    /// Δb `[d_output]` in f32; `None` when the patch leaves the bias alone.
    fn delta_bias(&self) -> Option<Tensor<1>> {
        None
    }

    /// `input · ΔWᵀ` without building ΔW: `[rows, fan_in] -> [rows, d_output]`; the bias is not in it.
    ///
    /// Computed in f32, answered in `input`'s dtype.
    /// `None` (the default) sends the patch through [`delta_weight`](Self::delta_weight).
    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        let _ = input;
        None
    }

    /// The same patch reduced to the output rows `rows` of its residual.
    ///
    /// `None` (the default) makes the caller compute the whole residual and slice it.
    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        let _ = rows;
        None
    }

    /// A copy whose tensors live on `device`, kept in `dtype` or a wider one; `self` is never changed.
    ///
    /// `dtype` is what the copy may be rounded to, to save memory; a tensor may stay f32, and does where
    /// the device lacks `dtype`. Residuals are f32 all the same.
    #[must_use]
    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch>;

    /// Bytes of the patch's tensors.
    fn num_bytes(&self) -> usize;
}

/// Bytes of a tensor's elements, for [`Patch::num_bytes`].
#[must_use]
pub fn tensor_bytes<const D: usize>(tensor: &Tensor<D>) -> usize {
    tensor.shape().num_elements() * tensor.dtype().size()
}
