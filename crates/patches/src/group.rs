//! The tensors of one target layer, before a kind has read them.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::{
    LayerConfig, PatchError,
    finite::{first_non_finite, largest},
};

/// The tensors of one target layer, keyed by canonical suffix (`lora_up.weight`, `alpha`, …).
#[derive(Clone, Debug, Default)]
pub struct TensorGroup {
    /// Name of the layer in the file, for messages.
    pub target: String,
    /// Canonical suffix to tensor, in the file's dtype.
    pub tensors: BTreeMap<String, TensorData>,
    /// What a PEFT configuration says of the layer; `None` without a configuration.
    pub config: Option<LayerConfig>,
}

impl TensorGroup {
    /// A group without a configuration.
    #[must_use]
    pub fn new(target: impl Into<String>, tensors: BTreeMap<String, TensorData>) -> Self {
        Self {
            target: target.into(),
            tensors,
            config: None,
        }
    }

    /// Whether there is a tensor under `key`.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.tensors.contains_key(key)
    }

    /// Shape of the tensor under `key`; empty when there is none.
    #[must_use]
    pub fn dims(&self, key: &str) -> Vec<usize> {
        let data = self.tensors.get(key);
        data.map(|data| data.shape().to_vec()).unwrap_or_default()
    }

    /// Removes the keys `keys`, as far as they are there, into a group of their own for the same layer.
    #[must_use]
    pub fn split_off(&mut self, keys: &[&str]) -> Self {
        let tensors = keys
            .iter()
            .filter_map(|key| self.tensors.remove_entry(*key))
            .collect();
        Self {
            target: self.target.clone(),
            tensors,
            config: self.config.clone(),
        }
    }

    /// That tensors of the group contradict each other, in the words `why`.
    #[must_use]
    pub fn inconsistent(&self, why: impl Into<String>) -> PatchError {
        PatchError::Inconsistent {
            target: self.target.clone(),
            why: why.into(),
        }
    }

    /// Removes the finite number under `key`; `None` when the file does not have it.
    ///
    /// # Errors
    /// [`PatchError::NotAScalar`], or [`PatchError::Inconsistent`] for NaN and infinity.
    pub fn take_finite(&mut self, key: &str) -> Result<Option<f32>, PatchError> {
        match self.take_scalar(key)? {
            Some(value) if !value.is_finite() => {
                Err(self.inconsistent(format!("`{key}` is {value}, expected a finite number")))
            }
            value => Ok(value),
        }
    }

    /// Factor on the residual of a kind whose scale is `alpha / rank`: the file's own `scale` where there is
    /// one, else `alpha / rank`, else 1.
    ///
    /// # Errors
    /// As [`take_finite`](Self::take_finite), or [`PatchError::Inconsistent`] for a rank of 0.
    pub fn take_scale(&mut self, rank: usize) -> Result<f32, PatchError> {
        if rank == 0 {
            return Err(self.inconsistent("the rank is 0"));
        }
        let alpha = self.take_finite("alpha")?;
        let scale = self.take_finite("scale")?;
        let scale = scale.or(alpha.map(|alpha| alpha / rank as f32));
        Ok(scale.unwrap_or(1.0))
    }

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

    /// Removes the vector under `key`, whatever axes of size 1 it has beside the one of its values:
    /// `[1, N, 1, 1] -> [N]`. The second answer is the axis of the values, `None` where there is only one axis or
    /// one value.
    ///
    /// # Errors
    /// As [`take`](Self::take), with [`PatchError::WrongRank`] for more than one axis of values or none.
    pub(crate) fn take_vector(
        &mut self,
        key: &str,
        device: &Device,
    ) -> Result<(Tensor<1>, Option<usize>), PatchError> {
        let data = self.take_data(key)?;
        let shape = data.shape().to_vec();
        let long = |(_, size): &(usize, &usize)| **size != 1;
        let mut axes = shape.iter().enumerate().filter(long);
        let axis = axes.next().map(|(axis, _)| axis);
        if shape.is_empty() || shape.contains(&0) || axes.next().is_some() {
            let expected = "one dimension, or more where the others are of size 1";
            return Err(self.wrong_rank(key, &data, expected.into()));
        }
        let length = shape.iter().product::<usize>();
        let axis = axis.filter(|_| shape.len() > 1);
        let vector = self.upload::<1>(key, reshaped(data, [length]), device)?;
        Ok((vector, axis))
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

    /// Product of the largest absolute values under `keys`, as far as they are there.
    pub(crate) fn largest_product(&self, keys: &[&str]) -> f64 {
        let tensors = keys.iter().filter_map(|key| self.tensors.get(*key));
        tensors.map(largest).product()
    }

    /// Refuses factors whose product may reach `bound`, times `scale`, where f32 does not hold that: it would become
    /// infinite or NaN, which attention swallows. Trained factors stay dozens of orders of magnitude below.
    ///
    /// # Errors
    /// [`PatchError::Inconsistent`].
    pub(crate) fn check_bound(&self, bound: f64, scale: f32) -> Result<(), PatchError> {
        let largest = bound * f64::from(scale.abs()).max(1.0);
        if largest <= f64::from(f32::MAX) {
            return Ok(());
        }
        Err(self.inconsistent(format!(
            "the product of the factors, with the scale {scale:e}, may reach {largest:.0e}, expected at most {:.1e}; the \
             file is damaged, use another copy",
            f32::MAX
        )))
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

    /// Removes `key` as it stands in the file, floating point and finite.
    ///
    /// # Errors
    /// [`PatchError::MissingTensor`], [`PatchError::NotFloat`] or [`PatchError::NotFinite`].
    pub(crate) fn take_floats(&mut self, key: &str) -> Result<TensorData, PatchError> {
        let data = self.take_data(key)?;
        self.check_floats(key, &data)?;
        Ok(data)
    }

    fn check_floats(&self, key: &str, data: &TensorData) -> Result<(), PatchError> {
        if data.dtype().is_float() {
            return self.check_finite(key, data);
        }
        Err(PatchError::NotFloat {
            target: self.target.clone(),
            key: key.into(),
            found: data.dtype().name().into(),
        })
    }

    fn upload<const D: usize>(
        &self,
        key: &str,
        data: TensorData,
        device: &Device,
    ) -> Result<Tensor<D>, PatchError> {
        self.check_floats(key, &data)?;
        let dtype = data.dtype();
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

/// Product of sizes that come from a file; `None` when it overflows. A 0 hides sizes after it that would, and their
/// product without it may still: see that there is none.
pub(crate) fn checked_product(sizes: &[usize]) -> Option<usize> {
    sizes
        .iter()
        .try_fold(1_usize, |product, size| product.checked_mul(*size))
}

/// `data` under another shape of as many elements.
fn reshaped<const D: usize>(data: TensorData, shape: [usize; D]) -> TensorData {
    let (bytes, _, dtype) = data.into_parts();
    TensorData::from_bytes(bytes, shape, dtype)
}
