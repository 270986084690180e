//! Several projections of one input: `yᵢ = Wᵢ·x`, stored as one stacked layer or as one each.
//!
//! A checkpoint keeps its own layout: a fused layer is not cut up and separate ones are not stacked,
//! so patches in the file's own naming fit without any work.

use burn::tensor::Tensor;
use overglaze_core::PatchedLinear;

use crate::{
    ModelError,
    flux::layers::{Layers, Named, Visitor, VisitorMut},
};

/// Projections of one input.
#[derive(Clone, Debug)]
pub(crate) enum Projection {
    /// One layer `[sum of widths, d_input]` whose rows are the projections, one after the other.
    Fused {
        /// The layer.
        linear: Box<Named<PatchedLinear>>,
        /// Rows of each projection.
        widths: Vec<usize>,
    },
    /// One layer `[width, d_input]` for each projection.
    Split(Vec<Named<PatchedLinear>>),
}

impl Projection {
    /// All projections of `input` `[batch, tokens, d_input]`, each `[batch, tokens, width]`.
    pub(crate) fn forward(&self, input: &Tensor<3>) -> Result<Vec<Tensor<3>>, ModelError> {
        match self {
            Self::Fused { linear, widths } => {
                let stacked = linear.layer.try_forward(input.clone())?;
                Ok(stacked.split_with_sizes(widths.clone(), 2))
            }
            Self::Split(linears) => linears
                .iter()
                .map(|linear| Ok(linear.layer.try_forward(input.clone())?))
                .collect(),
        }
    }
}

impl Layers for Projection {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match self {
            Self::Fused { linear, .. } => linear.visit(visitor),
            Self::Split(linears) => linears.visit(visitor),
        }
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        match self {
            Self::Fused { linear, .. } => linear.visit_mut(visitor),
            Self::Split(linears) => linears.visit_mut(visitor),
        }
    }
}
