//! The trait every patch kind implements.

use std::{fmt, ops::Range, sync::Arc};

use burn::tensor::{DType, Device, FloatDType, Tensor};

use crate::{BaseAccess, BaseLayer, ConvInput, Feature, LayerShape, LowRank, PatchError};

/// A removable modification of one layer, expressed as a residual on its parameters.
///
/// Everything is stated at strength 1. The residual of most kinds is proportional to the strength, and the
/// layer multiplies; a kind that is not answers [`at_strength`](Self::at_strength). Residuals are taken
/// against the *base* parameters, so patches of one layer commute. Strength 0 is "not mounted" for every kind
/// and asks nothing of the patch.
///
/// Residuals ([`delta_weight`](Self::delta_weight), [`delta_bias`](Self::delta_bias),
/// [`low_rank`](Self::low_rank)) come in f32 whatever the patch's tensors are kept in: f16 factors of 1e-4
/// have a product that f16 cannot hold.
///
/// Layers rely on all that is promised here; a kind's own tests can have it checked by
/// [`conformance::check`](crate::conformance::check).
pub trait Patch: fmt::Debug + Send + Sync {
    /// Name of the kind, for reports.
    fn kind(&self) -> &str;

    /// What [`delta_weight`](Self::delta_weight) needs to see of the base.
    fn base_access(&self) -> BaseAccess {
        BaseAccess::Shape
    }

    /// Whether the patch has a meaning on a layer of this operator and shape; asked once, at mount.
    ///
    /// # Errors
    /// [`PatchError::DoesNotFit`] naming the shape found and the one expected, or
    /// [`PatchError::NoMeaning`] where the kind has none on such a layer, whatever its shape.
    fn check(&self, layer: &LayerShape) -> Result<(), PatchError>;

    /// Parameters that the patch replaces instead of adding to; two replacements of one parameter exclude
    /// each other.
    fn replaces(&self) -> Replaced {
        Replaced::default()
    }

    /// Columns of the input the patch reads on `layer`: more than the base has for a control patch.
    fn d_input(&self, layer: &LayerShape) -> usize {
        layer.d_input()
    }

    /// The patch whose residual at strength 1 is this one's at `strength`; `None` (the default) when the
    /// residual is proportional to the strength.
    fn at_strength(&self, strength: f32) -> Option<Arc<dyn Patch>> {
        let _ = strength;
        None
    }

    /// ΔW as two thin factors; `None` (the default) when there are none. It is then the whole of ΔW.
    fn low_rank(&self) -> Option<LowRank> {
        None
    }

    /// ΔW `[d_output, fan_in]` in f32, with as many columns as [`d_input`](Self::d_input) tells where those are
    /// more than the base's; `None` when the patch leaves the weight alone.
    ///
    /// # Errors
    /// [`PatchError::BaseUnavailable`] when the patch needs values and `base` has none.
    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let _ = base;
        Ok(self.low_rank().map(LowRank::product))
    }

    /// Whether the patch has a Δb; nothing is computed to tell.
    fn changes_bias(&self) -> bool {
        false
    }

    /// Δb `[d_output]` in f32; `None` when the patch leaves the bias alone.
    ///
    /// # Errors
    /// What the kind finds wrong with `base`.
    fn delta_bias(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        let _ = base;
        Ok(None)
    }

    /// `input · ΔWᵀ` without building ΔW: `[rows, d_input] -> [rows, d_output]`, both f32; the bias is not in
    /// it. Asked of kinds without [`low_rank`](Self::low_rank) factors.
    ///
    /// `None` (the default) sends the patch through [`delta_weight`](Self::delta_weight).
    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        let _ = input;
        None
    }

    /// The convolution of `input` with ΔW without building ΔW, in f32; the bias is not in it. As
    /// [`sidecar_linear`](Self::sidecar_linear).
    fn sidecar_conv(&self, input: &ConvInput) -> Option<Feature> {
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

/// The parameters a patch replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// The weight, or a norm's scale.
    pub weight: bool,
    /// The bias, or a norm's shift.
    pub bias: bool,
}

/// Bytes of a tensor's elements, for [`Patch::num_bytes`].
#[must_use]
pub fn tensor_bytes<const D: usize>(tensor: &Tensor<D>) -> usize {
    tensor.shape().num_elements() * tensor.dtype().size()
}

/// `tensor` in f32, which all arithmetic of residuals is in.
#[must_use]
pub fn wide<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    if tensor.dtype() == DType::F32 {
        return tensor.clone();
    }
    tensor.clone().cast(FloatDType::F32)
}

/// `tensor` on `device` in `dtype`, for [`Patch::to_device`]: f32 where the device lacks `dtype`. It is cast on
/// the side that is known to have the new dtype.
#[must_use]
pub fn moved<const D: usize>(tensor: &Tensor<D>, device: &Device, dtype: FloatDType) -> Tensor<D> {
    let dtype = if device.supports_dtype(dtype) {
        dtype
    } else {
        FloatDType::F32
    };
    let tensor = tensor.clone();
    if tensor.device() == *device && tensor.dtype() == DType::from(dtype) {
        return tensor;
    }
    if tensor.device().supports_dtype(dtype) {
        return tensor.cast(dtype).to_device(device);
    }
    tensor.to_device(device).cast(dtype)
}
