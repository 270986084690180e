//! A patch with further residuals of its file laid on top: a dense Δb, a sparse ΔW or Δb.
//!
//! They are proportional to the strength whatever the patch below is.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseAccess, BaseLayer, ConvInput, Feature, LayerShape, LowRank, Patch, PatchError, Replaced,
    TensorGroup,
    axes::{check_bias, check_weight},
    group::checked_product,
    patch::{tensor_bytes, wide},
    sparse::SparseResidual,
};

/// `patch`, and residuals beside its own.
#[derive(Clone, Debug)]
pub(crate) struct Added {
    patch: Arc<dyn Patch>,
    /// Further Δb, f32 `[d_output]`.
    bias: Option<Tensor<1>>,
    /// Further Δb where it has one axis, else further ΔW. It stays sparse until it was checked against a
    /// layer: its dense form may be far larger than the file.
    sparse: Option<SparseResidual>,
    /// Where the dense form of `sparse` is made.
    device: Device,
}

impl Added {
    /// `patch` with the further Δb `bias` `[d_output]`.
    pub(crate) fn bias(patch: Arc<dyn Patch>, bias: &Tensor<1>) -> Arc<dyn Patch> {
        Arc::new(Self {
            patch,
            bias: Some(wide(bias)),
            sparse: None,
            device: bias.device(),
        })
    }

    /// `patch` with the sparse triple that is left in `group`; `patch` itself where there is none.
    ///
    /// # Errors
    /// As [`SparseResidual::take`].
    pub(crate) fn sparse(
        patch: Arc<dyn Patch>,
        group: &mut TensorGroup,
        device: &Device,
    ) -> Result<Arc<dyn Patch>, PatchError> {
        let residual = SparseResidual::take(group)?;
        Ok(Self::around(patch, residual, device))
    }

    /// As [`sparse`](Self::sparse), times `scale`, for a patch of a weight `[d_output, fan_in]` = `shape`.
    ///
    /// # Errors
    /// As [`sparse`](Self::sparse), or [`PatchError::Inconsistent`] when the triple is for another shape.
    pub(crate) fn scaled_sparse(
        patch: Arc<dyn Patch>,
        group: &mut TensorGroup,
        [d_output, fan_in]: [usize; 2],
        scale: f32,
        device: &Device,
    ) -> Result<Arc<dyn Patch>, PatchError> {
        let Some(residual) = SparseResidual::take(group)? else {
            return Ok(patch);
        };
        let fits = match residual.size() {
            [rows] => *rows == d_output,
            [rows, rest @ ..] => *rows == d_output && checked_product(rest) == Some(fan_in),
            [] => false,
        };
        if !fits {
            let size = residual.size();
            let expected = format!("[{d_output}] or [{d_output}, {fan_in}]");
            return Err(group.inconsistent(format!("`bias_size` is {size:?}, expected {expected}")));
        }
        Ok(Self::around(patch, Some(residual.scaled(scale)), device))
    }

    fn around(
        patch: Arc<dyn Patch>,
        sparse: Option<SparseResidual>,
        device: &Device,
    ) -> Arc<dyn Patch> {
        if sparse.is_none() {
            return patch;
        }
        Arc::new(Self {
            patch,
            bias: None,
            sparse,
            device: device.clone(),
        })
    }

    fn sparse_weight(&self) -> Option<&SparseResidual> {
        self.sparse
            .as_ref()
            .filter(|sparse| sparse.size().len() > 1)
    }

    /// Elements of the sparse Δb, and it.
    fn sparse_bias(&self) -> Option<(usize, &SparseResidual)> {
        let sparse = self.sparse.as_ref()?;
        match sparse.size() {
            [length] => Some((*length, sparse)),
            _ => None,
        }
    }
}

impl Patch for Added {
    fn kind(&self) -> &str {
        self.patch.kind()
    }

    fn base_access(&self) -> BaseAccess {
        self.patch.base_access()
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        self.patch.check(layer)?;
        if let Some(bias) = &self.bias {
            check_bias(self.kind(), bias.dims()[0], layer)?;
        }
        if let Some((length, _)) = self.sparse_bias() {
            check_bias(self.kind(), length, layer)?;
        }
        match self.sparse_weight() {
            Some(weight) => check_weight(self.kind(), weight.size(), layer),
            None => Ok(()),
        }
    }

    fn replaces(&self) -> Replaced {
        self.patch.replaces()
    }

    fn d_input(&self, layer: &LayerShape) -> usize {
        self.patch.d_input(layer)
    }

    fn at_strength(&self, strength: f32) -> Option<Arc<dyn Patch>> {
        let patch = self.patch.at_strength(strength)?;
        Some(Arc::new(Self {
            patch,
            bias: self.bias.clone().map(|bias| bias.mul_scalar(strength)),
            sparse: self.sparse.clone().map(|sparse| sparse.scaled(strength)),
            device: self.device.clone(),
        }))
    }

    fn low_rank(&self) -> Option<LowRank> {
        self.patch
            .low_rank()
            .filter(|_| self.sparse_weight().is_none())
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let delta = self.patch.delta_weight(base)?;
        let Some(weight) = self.sparse_weight() else {
            return Ok(delta);
        };
        let further = weight.to_dense(base.shape.matrix(), &self.device);
        Ok(Some(match delta {
            Some(delta) => delta + further,
            None => further,
        }))
    }

    fn changes_bias(&self) -> bool {
        self.bias.is_some() || self.sparse_bias().is_some() || self.patch.changes_bias()
    }

    fn delta_bias(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        let sparse = self.sparse_bias().map(|(length, sparse)| {
            let row = sparse.to_dense([1, length], &self.device);
            row.reshape([length])
        });
        let deltas = [self.patch.delta_bias(base)?, self.bias.clone(), sparse];
        Ok(deltas
            .into_iter()
            .flatten()
            .reduce(|sum, delta| sum + delta))
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        match self.sparse_weight() {
            Some(_) => None,
            None => self.patch.sidecar_linear(input),
        }
    }

    fn sidecar_conv(&self, input: &ConvInput) -> Option<Feature> {
        match self.sparse_weight() {
            Some(_) => None,
            None => self.patch.sidecar_conv(input),
        }
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        let patch = self.patch.slice_rows(rows.clone())?;
        let lengths = [
            self.bias.as_ref().map(|bias| bias.dims()[0]),
            self.sparse.as_ref().map(|sparse| sparse.size()[0]),
        ];
        if rows.is_empty()
            || lengths
                .into_iter()
                .flatten()
                .any(|length| rows.end > length)
        {
            return None;
        }
        Some(Arc::new(Self {
            patch,
            bias: self.bias.clone().map(|bias| bias.slice([rows.clone()])),
            sparse: self.sparse.as_ref().map(|sparse| sparse.rows(rows)),
            device: self.device.clone(),
        }))
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            patch: self.patch.to_device(device, dtype),
            bias: self.bias.clone().map(|bias| bias.to_device(device)),
            sparse: self.sparse.clone(),
            device: device.clone(),
        })
    }

    fn num_bytes(&self) -> usize {
        let sparse = self.sparse.as_ref().map_or(0, SparseResidual::num_bytes);
        self.patch.num_bytes() + sparse + self.bias.as_ref().map_or(0, tensor_bytes)
    }
}
