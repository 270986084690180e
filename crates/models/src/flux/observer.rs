//! What each block computed, for those who compare with another implementation.

use burn::tensor::Tensor;

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Two streams with weights of their own.
    Double,
    /// One stream over both.
    Single,
}

/// The two streams after a block.
#[derive(Clone, Debug)]
pub struct BlockOutput {
    /// Kind of the block.
    pub kind: BlockKind,
    /// Index among the blocks of its kind.
    pub index: usize,
    /// Image stream `[batch, tokens, inner]`.
    pub img: Tensor<3>,
    /// Text stream `[batch, text tokens, inner]`.
    pub txt: Tensor<3>,
}
