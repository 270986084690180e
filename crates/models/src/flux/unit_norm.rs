//! Layer norm without parameters of its own, modulated: `LN(x)·(1 + scale) + shift`, eps 1e-6.

use burn::tensor::{DType, Device, Tensor, module::layer_norm};

/// A layer norm that scales by one; clones share the ones.
#[derive(Clone, Debug)]
pub(crate) struct UnitNorm {
    /// `[width]`; Burn's layer norm wants a scale.
    ones: Tensor<1>,
}

impl UnitNorm {
    /// A norm over `width` channels on `device`.
    pub(crate) fn new(width: usize, device: &Device) -> Self {
        Self {
            ones: Tensor::ones([width], (device, DType::F32)),
        }
    }

    /// `LN(x)·(1 + scale) + shift` with x `[batch, tokens, width]`, the others `[batch, 1, width]`.
    pub(crate) fn modulated(&self, x: Tensor<3>, shift: Tensor<3>, scale: Tensor<3>) -> Tensor<3> {
        let device = x.device();
        let mut ones = self.ones.clone();
        if ones.device() != device {
            ones = ones.to_device(&device);
        }
        layer_norm(x, ones, None, EPSILON) * (scale + 1.0) + shift
    }
}

const EPSILON: f64 = 1e-6;
