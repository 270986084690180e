//! What a patch may see of the layer it is laid over.

use burn::tensor::Tensor;

use crate::{LayerShape, PatchError};

/// How much of the base weight a patch must see. A base bias is always shown: it is never packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseAccess {
    /// The logical shape is enough; such a patch works on any packed format.
    Shape,
    /// The dense values are needed; a packed base is decoded for the patch, transiently.
    Weight,
}

/// The unpatched layer, as far as the patch asked to see it.
#[derive(Clone, Copy, Debug)]
pub struct BaseLayer<'a> {
    /// Operator and logical shape of the weight.
    pub shape: &'a LayerShape,
    /// Dense weight `[d_output, fan_in]` in f32; present when the patch declared [`BaseAccess::Weight`].
    pub weight: Option<&'a Tensor<2>>,
    /// Bias, or a norm's shift, `[d_output]` in f32; `None` when the base has none, which counts as zeros.
    pub bias: Option<&'a Tensor<1>>,
}

impl<'a> BaseLayer<'a> {
    /// A layer of which only the shape is known.
    #[must_use]
    pub fn of_shape(shape: &'a LayerShape) -> Self {
        Self {
            shape,
            weight: None,
            bias: None,
        }
    }
    /// The values of the weight, for a patch of `kind` that needs them.
    ///
    /// # Errors
    /// [`PatchError::BaseUnavailable`] when only the shape is known.
    pub fn weight_for(&self, kind: &str) -> Result<&'a Tensor<2>, PatchError> {
        self.weight
            .ok_or_else(|| PatchError::BaseUnavailable { kind: kind.into() })
    }
}
