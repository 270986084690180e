//! What a patch may see of the layer it is laid over.

use burn::tensor::Tensor;

/// How much of the base layer a patch must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseAccess {
    /// The logical shape is enough; such a patch works on any packed format.
    Shape,
    /// The dense values are needed; a packed base is decoded for the patch, transiently.
    Weight,
}

/// The unpatched layer, as far as the patch asked to see it.
#[derive(Debug)]
pub struct BaseLayer<'a> {
    /// Logical shape `[d_output, fan_in]`.
    pub shape: [usize; 2],
    /// Dense weight `[d_output, fan_in]`; present when the patch declared [`BaseAccess::Weight`].
    pub weight: Option<&'a Tensor<2>>,
}
