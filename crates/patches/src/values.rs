//! The values of a parameter as a file holds them: a matrix, and the axes it stands for.

use std::ops::Range;

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    PatchError, TensorGroup,
    axes::check_size,
    patch::{moved, tensor_bytes, wide},
};

/// Values of a parameter of any shape, in the file's dtype.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    /// `[d_output, fan_in]`; a vector is one column.
    matrix: Tensor<2>,
    /// Shape in the file.
    dims: Vec<usize>,
}

impl Values {
    /// Removes `key` from `group`.
    ///
    /// # Errors
    /// As [`TensorGroup::take`], or [`PatchError::Inconsistent`] for a tensor without elements.
    pub(crate) fn take(
        group: &mut TensorGroup,
        key: &str,
        device: &Device,
    ) -> Result<Self, PatchError> {
        let dims = group.dims(key);
        let matrix = if dims.len() == 1 {
            group.take::<1>(key, device)?.unsqueeze_dim(1)
        } else {
            group.take_flat(key, device)?
        };
        check_size(group, matrix.dims())?;
        Ok(Self { matrix, dims })
    }

    /// Shape in the file.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Shape as a matrix `[d_output, fan_in]`.
    pub(crate) fn shape(&self) -> [usize; 2] {
        self.matrix.dims()
    }

    /// The values in f32 as the matrix of a layer, `shape` = `[d_output, fan_in]`.
    pub(crate) fn of_shape(&self, shape: [usize; 2]) -> Tensor<2> {
        wide(&self.matrix).reshape(shape)
    }

    /// The rows `rows`; `None` when they lie outside.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Option<Self> {
        if rows.is_empty() || rows.end > self.matrix.dims()[0] {
            return None;
        }
        let mut dims = self.dims.clone();
        *dims.first_mut()? = rows.len();
        Some(Self {
            matrix: self.matrix.clone().slice_dim(0, rows),
            dims,
        })
    }

    /// A copy on `device` in `dtype` or a wider one.
    pub(crate) fn moved(&self, device: &Device, dtype: FloatDType) -> Self {
        Self {
            matrix: moved(&self.matrix, device, dtype),
            dims: self.dims.clone(),
        }
    }

    pub(crate) fn num_bytes(&self) -> usize {
        tensor_bytes(&self.matrix)
    }
}
