//! Joint attention over text and image tokens: `softmax(q·kᵀ/√d)·v` with RMS-normalized, rotated
//! queries and keys. Heads are `[batch, tokens, heads, head_dim]`, as projections come, until they attend.

use burn::tensor::{Tensor, module::attention, ops::AttentionModuleOptions};
use overglaze_core::PatchedRmsNorm;

use crate::{
    ModelError,
    flux::{
        layers::{Named, visit_fields},
        rope::Rotary,
    },
};

/// Queries, keys and values of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Heads {
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
}

/// The RMS norms over each head of a stream's queries and keys.
#[derive(Clone, Debug)]
pub(crate) struct HeadNorms {
    pub(crate) head_dim: usize,
    pub(crate) query: Named<PatchedRmsNorm>,
    pub(crate) key: Named<PatchedRmsNorm>,
}

visit_fields!(HeadNorms { query, key });

impl HeadNorms {
    /// Cuts projections `[batch, tokens, inner]` into heads and normalizes queries and keys.
    pub(crate) fn heads(&self, [query, key, value]: [Tensor<3>; 3]) -> Result<Heads, ModelError> {
        let head_dim = self.head_dim;
        let query = self.query.layer.try_forward(cut(query, head_dim))?;
        let key = self.key.layer.try_forward(cut(key, head_dim))?;
        let value = cut(value, head_dim);
        Ok(Heads { query, key, value })
    }
}

impl Heads {
    /// The tokens of `self` followed by those of `other`.
    pub(crate) fn concat(self, other: Self) -> Self {
        let join = |first, second| Tensor::cat(vec![first, second], 1);
        Self {
            query: join(self.query, other.query),
            key: join(self.key, other.key),
            value: join(self.value, other.value),
        }
    }

    /// What every token attends to, `[batch, tokens, inner]`.
    pub(crate) fn attend(self, rotary: &Rotary) -> Tensor<3> {
        let [batch, tokens, heads, head_dim] = self.query.dims();
        let heads_first = |x: Tensor<4>| x.swap_dims(1, 2);
        let query = heads_first(rotary.apply(self.query));
        let key = heads_first(rotary.apply(self.key));
        let output = attend_in_chunks(&query, &key, &heads_first(self.value));
        output
            .swap_dims(1, 2)
            .reshape([batch, tokens, heads * head_dim])
    }
}

/// Attention over bounded chunks of query rows, heads as `[batch, heads, tokens, head_dim]`. A row depends
/// on no other, so the result is that of one call, and a device without fused attention never holds more
/// than [`MAX_SCORES`] scores.
fn attend_in_chunks(query: &Tensor<4>, key: &Tensor<4>, value: &Tensor<4>) -> Tensor<4> {
    let [batch, heads, tokens, _] = query.dims();
    let rows = (MAX_SCORES / (batch * heads * tokens)).clamp(1, tokens);
    let chunk = |start: usize| {
        let query = query.clone().narrow(2, start, rows.min(tokens - start));
        let options = AttentionModuleOptions::default();
        attention(query, key.clone(), value.clone(), None, None, options)
    };
    Tensor::cat((0..tokens).step_by(rows).map(chunk).collect(), 2)
}

/// `[batch, tokens, inner]` as `[batch, tokens, heads, head_dim]`.
fn cut(x: Tensor<3>, head_dim: usize) -> Tensor<4> {
    let [batch, tokens, inner] = x.dims();
    x.reshape([batch, tokens, inner / head_dim, head_dim])
}

/// Scores held at once where attention isn't fused: 128 MiB in f32.
const MAX_SCORES: usize = 1 << 25;
