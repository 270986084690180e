//! The tensors of one target layer, before a kind has read them.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::{PatchError, finite::first_non_finite};

/// The tensors of one target layer, keyed by canonical suffix (`lora_up.weight`, `alpha`, …).
#[derive(Clone, Debug, Default)]
pub struct TensorGroup {
    /// Name of the layer in the file, for messages.
    pub target: String,
    /// Canonical suffix to tensor, in the file's dtype.
    pub tensors: BTreeMap<String, TensorData>,
}

impl TensorGroup {
    /// Removes `key` and makes it a tensor of rank `D` on `device`, in the file's dtype where the
    /// device has it and in f32 where it does not.
    ///
    /// # Errors
    /// [`PatchError::MissingTensor`], [`PatchError::WrongRank`], [`PatchError::NotFloat`] or
    /// [`PatchError::NotFinite`].
    pub fn take<const D: usize>(
        &mut self,
        key: &str,
        device: &Device,
    ) -> Result<Tensor<D>, PatchError> {
        let data = self.take_data(key)?;
        if data.rank() != D {
            return Err(self.wrong_rank(key, &data, format!("{D} dimensions")));
        }
        self.upload(key, data, device)
    }

    /// As [`take`](Self::take) for a matrix that may carry further dimensions of size 1, as the
    /// factors of 1x1 convolutions do: `[rows, columns, 1, 1] -> [rows, columns]`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_squeezed(&mut self, key: &str, device: &Device) -> Result<Tensor<2>, PatchError> {
        let data = self.take_data(key)?;
        match **data.shape() {
            [rows, columns, ref rest @ ..] if rest.iter().all(|size| *size == 1) => {
                Ok(self.upload::<2>(key, reshaped(data, [rows, columns]), device)?)
            }
            _ => {
                let expected = "2 dimensions, or more where the others are of size 1";
                Err(self.wrong_rank(key, &data, expected.into()))
            }
        }
    }

    /// As [`take`](Self::take) with everything after the first dimension flattened:
    /// `[rows, a, b, …] -> [rows, a·b·…]`.
    ///
    /// # Errors
    /// As [`take`](Self::take), or [`PatchError::Inconsistent`] for more columns than can be counted, as a
    /// tensor without rows may state.
    pub fn take_flat(&mut self, key: &str, device: &Device) -> Result<Tensor<2>, PatchError> {
        let data = self.take_data(key)?;
        match **data.shape() {
            [rows, ref rest @ ..] if !rest.is_empty() => {
                let columns = checked_product(rest).ok_or_else(|| PatchError::Inconsistent {
                    target: self.target.clone(),
                    why: format!(
                        "`{key}` has shape {:?}, which overflows",
                        data.shape().to_vec()
                    ),
                })?;
                self.upload::<2>(key, reshaped(data, [rows, columns]), device)
            }
            _ => Err(self.wrong_rank(key, &data, "2 or more dimensions".into())),
        }
    }

    /// Removes the one number under `key`; `None` when the file does not have it.
    ///
    /// # Errors
    /// [`PatchError::NotAScalar`] when the tensor does not hold exactly one element.
    pub fn take_scalar(&mut self, key: &str) -> Result<Option<f32>, PatchError> {
        let Some(data) = self.tensors.remove(key) else {
            return Ok(None);
        };
        let mut values = data.iter::<f32>();
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(Some(value)),
            _ => Err(PatchError::NotAScalar {
                target: self.target.clone(),
                key: key.into(),
                found: data.shape().to_vec(),
            }),
        }
    }

    /// Removes `key` as it stands in the file.
    ///
    /// # Errors
    /// [`PatchError::MissingTensor`].
    pub fn take_data(&mut self, key: &str) -> Result<TensorData, PatchError> {
        self.tensors
            .remove(key)
            .ok_or_else(|| PatchError::MissingTensor {
                target: self.target.clone(),
                key: key.into(),
            })
    }

    /// Attention swallows a NaN: without this check, a damaged file gives plausible pictures.
    pub(crate) fn check_finite(&self, key: &str, data: &TensorData) -> Result<(), PatchError> {
        match first_non_finite(data) {
            None => Ok(()),
            Some((index, value)) => Err(PatchError::NotFinite {
                target: self.target.clone(),
                key: key.into(),
                index,
                value,
            }),
        }
    }

    fn upload<const D: usize>(
        &self,
        key: &str,
        data: TensorData,
        device: &Device,
    ) -> Result<Tensor<D>, PatchError> {
        let dtype = data.dtype();
        if !dtype.is_float() {
            return Err(PatchError::NotFloat {
                target: self.target.clone(),
                key: key.into(),
                found: dtype.name().into(),
            });
        }
        self.check_finite(key, &data)?;
        let dtype = if device.supports_dtype(dtype) {
            dtype
        } else {
            DType::F32
        };
        Ok(Tensor::from_data(data, (device, dtype)))
    }

    fn wrong_rank(&self, key: &str, data: &TensorData, expected: String) -> PatchError {
        PatchError::WrongRank {
            target: self.target.clone(),
            key: key.into(),
            found: data.shape().to_vec(),
            expected,
        }
    }
}

/// Product of sizes that come from a file; `None` when it overflows, as sizes beside a 0 may.
pub(crate) fn checked_product(sizes: &[usize]) -> Option<usize> {
    sizes
        .iter()
        .try_fold(1_usize, |product, size| product.checked_mul(*size))
}

/// `data` under another shape of as many elements.
fn reshaped(data: TensorData, shape: [usize; 2]) -> TensorData {
    let (bytes, _, dtype) = data.into_parts();
    TensorData::from_bytes(bytes, shape, dtype)
}
