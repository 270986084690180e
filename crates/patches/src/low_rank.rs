//! A residual that is a product of two thin factors, which a layer applies without building it.

use burn::tensor::Tensor;

/// `ΔW = up · down`, seen as a matrix `[d_output, fan_in]`, in f32; the scale of the file is in it already.
///
/// A linear layer adds `(x · downᵀ) · upᵀ`, a convolution runs `down` with its own geometry and `up` as a
/// 1×1 kernel, an embedding multiplies the looked-up rows of `up` with `down`.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// `[d_output, rank]`.
    pub up: Tensor<2>,
    /// `[rank, fan_in]`.
    pub down: Tensor<2>,
}

impl LowRank {
    /// Columns of `up`, rows of `down`.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.down.dims()[0]
    }

    /// ΔW `[d_output, fan_in]`.
    #[must_use]
    pub fn product(self) -> Tensor<2> {
        self.up.matmul(self.down)
    }
}
