//! What sampling yields, in host memory: image tokens `[prompts, tokens, channels]` in f32.

use burn::tensor::{DType, Device, Tensor, TensorData};
use overglaze_models::ModelError;

use crate::CliError;

/// Image tokens `[prompts, tokens, channels]`, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Latents {
    values: Vec<f32>,
    shape: [usize; 3],
}

impl Latents {
    /// From values and their shape.
    ///
    /// # Panics
    /// Where the shape is not that of the values.
    #[must_use]
    pub fn new(values: Vec<f32>, shape: [usize; 3]) -> Self {
        assert_eq!(
            values.len(),
            shape.iter().product::<usize>(),
            "latents of shape {shape:?}"
        );
        Self { values, shape }
    }

    /// Reads a tensor back from its device.
    ///
    /// # Errors
    /// [`CliError::Model`] when the device fails.
    pub fn from_tensor(tensor: Tensor<3>) -> Result<Self, CliError> {
        let shape = tensor.dims();
        let values = tensor
            .try_into_vec_as::<f32>()
            .map_err(|source| ModelError::Readback {
                what: "the result",
                source,
            })?;
        Ok(Self { values, shape })
    }

    /// Shape `[prompts, tokens, channels]`.
    #[must_use]
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Whether every value is a finite number.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        self.values.iter().all(|value| value.is_finite())
    }

    /// All values, row-major.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The values of one prompt, `[tokens, channels]`.
    ///
    /// # Panics
    /// Where there is no such prompt.
    #[must_use]
    pub fn prompt(&self, index: usize) -> &[f32] {
        let len = self.shape[1] * self.shape[2];
        &self.values[index * len..(index + 1) * len]
    }

    /// The values as little-endian bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    /// The prompts in `range` as a tensor on `device`.
    ///
    /// # Panics
    /// Where the range is not one of prompts.
    #[must_use]
    pub fn rows(&self, range: std::ops::Range<usize>, device: &Device) -> Tensor<3> {
        let [_, tokens, channels] = self.shape;
        let (shape, len) = ([range.len(), tokens, channels], tokens * channels);
        let values = self.values[range.start * len..range.end * len].to_vec();
        Tensor::from_data(TensorData::new(values, shape), (device, DType::F32))
    }
}
