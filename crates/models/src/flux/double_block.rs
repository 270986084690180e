//! A double block: text and image keep weights of their own and attend to each other.
//!
//! ```text
//! a, b       = branches of modulation(c)                 (shift, scale, gate) each
//! q, k, v    = heads of qkv(a(x))                        per stream
//! attention  over [txt, img], split back
//! x         += gate_a · proj(attention)
//! x         += gate_b · mlp_out(gelu(mlp_in(b(x))))
//! ```

use burn::tensor::Tensor;
use overglaze_core::PatchedLinear;

use crate::{
    ModelError,
    flux::{
        attention::{HeadNorms, Heads},
        gelu::gelu,
        layers::{Named, visit_fields},
        modulation::{Branch, Modulation},
        projection::Projection,
        rope::Rotary,
    },
};

/// A double block; the fields are in execution order.
#[derive(Clone, Debug)]
pub(crate) struct DoubleBlock {
    pub(crate) img_entry: StreamEntry,
    pub(crate) txt_entry: StreamEntry,
    pub(crate) img_exit: StreamExit,
    pub(crate) txt_exit: StreamExit,
}

visit_fields!(DoubleBlock {
    img_entry,
    txt_entry,
    img_exit,
    txt_exit
});

impl DoubleBlock {
    /// The streams `[img, txt]` after the block, from those before it and the activated
    /// conditioning `[batch, inner]`.
    pub(crate) fn forward(
        &self,
        [img, txt]: [Tensor<3>; 2],
        conditioning: &Tensor<2>,
        rotary: &Rotary,
    ) -> Result<[Tensor<3>; 2], ModelError> {
        let ([_, image_tokens, _], [_, text_tokens, _]) = (img.dims(), txt.dims());
        let (img_heads, img_branches) = self.img_entry.forward(&img, conditioning)?;
        let (txt_heads, txt_branches) = self.txt_entry.forward(&txt, conditioning)?;
        let attended = txt_heads.concat(img_heads).attend(rotary);
        let img_attended = attended.clone().narrow(1, text_tokens, image_tokens);
        let txt_attended = attended.narrow(1, 0, text_tokens);
        let img = self.img_exit.forward(img, img_attended, &img_branches)?;
        let txt = self.txt_exit.forward(txt, txt_attended, &txt_branches)?;
        Ok([img, txt])
    }
}

/// One stream's layers before attention.
#[derive(Clone, Debug)]
pub(crate) struct StreamEntry {
    pub(crate) modulation: Modulation,
    pub(crate) qkv: Projection,
    pub(crate) norms: HeadNorms,
}

visit_fields!(StreamEntry {
    modulation,
    qkv,
    norms
});

impl StreamEntry {
    /// The stream's heads, and its branches: attention, then perceptron.
    fn forward(
        &self,
        stream: &Tensor<3>,
        conditioning: &Tensor<2>,
    ) -> Result<(Heads, [Branch; 2]), ModelError> {
        let [a, b, c, d, e, f] = self.modulation.vectors(conditioning)?;
        let branch = |vectors| Branch::new(vectors, &self.modulation.norm);
        let branches = [branch([a, b, c]), branch([d, e, f])];
        let qkv = self.qkv.forward(&branches[0].input(stream))?;
        let qkv = qkv
            .try_into()
            .expect("q, k and v are the three parts of the projection");
        Ok((self.norms.heads(qkv)?, branches))
    }
}

/// One stream's layers after attention.
#[derive(Clone, Debug)]
pub(crate) struct StreamExit {
    pub(crate) proj: Named<PatchedLinear>,
    pub(crate) mlp_in: Named<PatchedLinear>,
    pub(crate) mlp_out: Named<PatchedLinear>,
}

visit_fields!(StreamExit {
    proj,
    mlp_in,
    mlp_out
});

impl StreamExit {
    fn forward(
        &self,
        stream: Tensor<3>,
        attended: Tensor<3>,
        [attention, mlp]: &[Branch; 2],
    ) -> Result<Tensor<3>, ModelError> {
        let stream = attention.add(stream, self.proj.layer.try_forward(attended)?);
        let hidden = self.mlp_in.layer.try_forward(mlp.input(&stream))?;
        let output = self.mlp_out.layer.try_forward(gelu(hidden))?;
        Ok(mlp.add(stream, output))
    }
}
