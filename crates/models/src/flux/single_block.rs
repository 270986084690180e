//! A single block: one stream over text and image, attention and perceptron side by side.
//!
//! ```text
//! q, k, v, h = parts of linear1(LN(x)·(1 + scale) + shift)
//! x         += gate · linear2([attention(q, k, v), gelu(h)])
//! ```

use burn::tensor::Tensor;
use overglaze_core::PatchedLinear;

use crate::{
    ModelError,
    flux::{
        attention::HeadNorms,
        gelu::gelu,
        layers::{Named, visit_fields},
        modulation::{Branch, Modulation},
        projection::Projection,
        rope::Rotary,
    },
};

/// A single block.
#[derive(Clone, Debug)]
pub(crate) struct SingleBlock {
    pub(crate) modulation: Modulation,
    pub(crate) qkv_mlp: Projection,
    pub(crate) norms: HeadNorms,
    pub(crate) out: Named<PatchedLinear>,
}

visit_fields!(SingleBlock {
    modulation,
    qkv_mlp,
    norms,
    out
});

impl SingleBlock {
    /// The stream `[batch, text + image tokens, inner]` after the block.
    pub(crate) fn forward(
        &self,
        stream: Tensor<3>,
        conditioning: &Tensor<2>,
        rotary: &Rotary,
    ) -> Result<Tensor<3>, ModelError> {
        let branch = Branch::new(
            self.modulation.vectors(conditioning)?,
            &self.modulation.norm,
        );
        let parts = self.qkv_mlp.forward(&branch.input(&stream))?;
        let [query, key, value, hidden]: [Tensor<3>; 4] = parts
            .try_into()
            .expect("q, k, v and the perceptron are the four parts");
        let attended = self.norms.heads([query, key, value])?.attend(rotary);
        let joined = Tensor::cat(vec![attended, gelu(hidden)], 2);
        let output = self.out.layer.try_forward(joined)?;
        Ok(branch.add(stream, output))
    }
}
