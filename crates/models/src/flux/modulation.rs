//! Adaptive layer norm: `y = LN(x)·(1 + scale) + shift`, and the gate on a residual branch, all three
//! linear in the conditioning vector.
//!
//! Reference: Peebles and Xie, "Scalable Diffusion Models with Transformers", adaLN-Zero.

use std::array;

use burn::tensor::Tensor;
use overglaze_core::PatchedLinear;

use crate::{
    ModelError,
    flux::{
        layers::{Named, visit_fields},
        unit_norm::UnitNorm,
    },
};

/// The layer `[n·inner, inner]` that computes n modulation vectors, and the norm they modulate.
#[derive(Clone, Debug)]
pub(crate) struct Modulation {
    pub(crate) linear: Named<PatchedLinear>,
    pub(crate) norm: UnitNorm,
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

/// Shift, scale and gate of one residual branch, each `[batch, 1, inner]`, with the norm before it.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    shift: Tensor<3>,
    scale: Tensor<3>,
    gate: Tensor<3>,
    norm: UnitNorm,
}

impl Branch {
    pub(crate) fn new([shift, scale, gate]: [Tensor<3>; 3], norm: &UnitNorm) -> Self {
        let norm = norm.clone();
        Self {
            shift,
            scale,
            gate,
            norm,
        }
    }

    /// The branch's input: the modulated norm of the stream.
    pub(crate) fn input(&self, stream: &Tensor<3>) -> Tensor<3> {
        let (shift, scale) = (self.shift.clone(), self.scale.clone());
        self.norm.modulated(stream.clone(), shift, scale)
    }

    /// The stream with the branch's gated output added.
    pub(crate) fn add(&self, stream: Tensor<3>, output: Tensor<3>) -> Tensor<3> {
        stream + output * self.gate.clone()
    }
}
