//! Adaptive layer norm: `y = LN(x)·(1 + scale) + shift`, and the gate on a residual branch, all three
//! linear in the conditioning vector. The layer norm has no parameters of its own, eps 1e-6.
//!
//! Reference: Peebles and Xie, "Scalable Diffusion Models with Transformers", adaLN-Zero.

use std::array;

use burn::tensor::{DType, Tensor, module::layer_norm};
use overglaze_core::PatchedLinear;

use crate::{
    ModelError,
    flux::layers::{Named, visit_fields},
};

/// The layer `[n·inner, inner]` that computes n modulation vectors.
#[derive(Clone, Debug)]
pub(crate) struct Modulation {
    pub(crate) linear: Named<PatchedLinear>,
}

visit_fields!(Modulation { linear });

impl Modulation {
    /// The modulation vectors, each `[batch, 1, inner]`, from the activated conditioning
    /// `[batch, inner]`.
    pub(crate) fn vectors<const N: usize>(
        &self,
        conditioning: &Tensor<2>,
    ) -> Result<[Tensor<3>; N], ModelError> {
        let [batch, inner] = conditioning.dims();
        let stacked = self.linear.layer.try_forward(conditioning.clone())?;
        let stacked = stacked.reshape([batch, N, inner]);
        Ok(array::from_fn(|index| stacked.clone().narrow(1, index, 1)))
    }
}

/// Shift, scale and gate of one residual branch, each `[batch, 1, inner]`.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) shift: Tensor<3>,
    pub(crate) scale: Tensor<3>,
    pub(crate) gate: Tensor<3>,
}

impl Branch {
    pub(crate) fn new([shift, scale, gate]: [Tensor<3>; 3]) -> Self {
        Self { shift, scale, gate }
    }

    /// The branch's input: the modulated norm of the stream.
    pub(crate) fn input(&self, stream: &Tensor<3>) -> Tensor<3> {
        modulated_norm(stream.clone(), self.shift.clone(), self.scale.clone())
    }

    /// The stream with the branch's gated output added.
    pub(crate) fn add(&self, stream: Tensor<3>, output: Tensor<3>) -> Tensor<3> {
        stream + output * self.gate.clone()
    }
}

/// `LN(x)·(1 + scale) + shift` with x `[batch, tokens, inner]`.
pub(crate) fn modulated_norm(x: Tensor<3>, shift: Tensor<3>, scale: Tensor<3>) -> Tensor<3> {
    let [.., width] = x.dims();
    let ones = Tensor::ones([width], (&x.device(), DType::F32));
    layer_norm(x, ones, None, LAYER_NORM_EPS) * (scale + 1.0) + shift
}

const LAYER_NORM_EPS: f64 = 1e-6;
