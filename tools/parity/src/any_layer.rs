//! A layer of any kind, for areas whose cases have many.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use overglaze_core::{
    Error, PatchedConv, PatchedConv1d, PatchedConv2d, PatchedConv3d, PatchedEmbedding,
    PatchedGroupNorm, PatchedLayer, PatchedLayerNorm, PatchedLinear, PatchedRmsNorm,
};

/// A layer of any kind.
#[derive(Clone, Debug)]
pub enum AnyLayer {
    /// `kind` `linear`.
    Linear(PatchedLinear),
    /// `kind` `conv1d`.
    Conv1d(PatchedConv1d),
    /// `kind` `conv2d`.
    Conv2d(PatchedConv2d),
    /// `kind` `conv3d`.
    Conv3d(PatchedConv3d),
    /// `kind` `embedding`.
    Embedding(PatchedEmbedding),
    /// `kind` `layer_norm`.
    LayerNorm(PatchedLayerNorm),
    /// `kind` `group_norm`.
    GroupNorm(PatchedGroupNorm),
    /// `kind` `flux_rms_norm` or `diffusers_rms_norm`.
    RmsNorm(PatchedRmsNorm),
}

impl AnyLayer {
    /// The layer as any other.
    #[must_use]
    pub fn layer(&self) -> &dyn PatchedLayer {
        match self {
            Self::Linear(layer) => layer,
            Self::Conv1d(layer) => layer,
            Self::Conv2d(layer) => layer,
            Self::Conv3d(layer) => layer,
            Self::Embedding(layer) => layer,
            Self::LayerNorm(layer) => layer,
            Self::GroupNorm(layer) => layer,
            Self::RmsNorm(layer) => layer,
        }
    }

    /// The layer as any other, to change.
    pub fn layer_mut(&mut self) -> &mut dyn PatchedLayer {
        match self {
            Self::Linear(layer) => layer,
            Self::Conv1d(layer) => layer,
            Self::Conv2d(layer) => layer,
            Self::Conv3d(layer) => layer,
            Self::Embedding(layer) => layer,
            Self::LayerNorm(layer) => layer,
            Self::GroupNorm(layer) => layer,
            Self::RmsNorm(layer) => layer,
        }
    }

    /// The layer's output for `input`, whatever its rank: floats, or the indices of an embedding.
    ///
    /// # Errors
    /// When the layer refuses the input, or there are too many axes.
    pub fn forward(&self, input: &TensorData, device: &Device) -> Result<TensorData, String> {
        match self {
            Self::Conv1d(layer) => convolved(layer, input, device),
            Self::Conv2d(layer) => convolved(layer, input, device),
            Self::Conv3d(layer) => convolved(layer, input, device),
            Self::Embedding(layer) => looked_up(layer, input, device),
            _ => match input.shape().len() {
                1 => self.ranked::<1>(input, device),
                2 => self.ranked::<2>(input, device),
                3 => self.ranked::<3>(input, device),
                4 => self.ranked::<4>(input, device),
                5 => self.ranked::<5>(input, device),
                rank => Err(format!("an input of {rank} dimensions")),
            },
        }
    }

    fn ranked<const D: usize>(
        &self,
        input: &TensorData,
        device: &Device,
    ) -> Result<TensorData, String> {
        let input = float_tensor::<D>(input, device)?;
        let output = match self {
            Self::Linear(layer) => layer.try_forward(input),
            Self::LayerNorm(layer) => layer.try_forward(input),
            Self::GroupNorm(layer) => layer.try_forward(input),
            Self::RmsNorm(layer) => layer.try_forward(input),
            _ => return Err(format!("an input of {D} dimensions")),
        };
        Ok(output.map_err(|error| in_words(&error))?.into_data())
    }
}

fn convolved<const D: usize>(
    layer: &PatchedConv<D>,
    input: &TensorData,
    device: &Device,
) -> Result<TensorData, String> {
    let output = layer.try_forward(float_tensor(input, device)?);
    Ok(output.map_err(|error| in_words(&error))?.into_data())
}

/// The rows for indices of any rank: one axis more.
fn looked_up(
    layer: &PatchedEmbedding,
    ids: &TensorData,
    device: &Device,
) -> Result<TensorData, String> {
    let mut shape: Vec<usize> = ids.shape().to_vec();
    let flat: Vec<i64> = ids.iter::<i64>().collect();
    let flat = TensorData::new(flat, [ids.num_elements()]);
    let flat = Tensor::<1, Int>::from_data(flat, (device, DType::I64));
    let rows = layer.try_rows(&flat).map_err(|error| in_words(&error))?;
    shape.push(rows.dims()[1]);
    let rows = rows.into_data();
    let (bytes, dtype) = (rows.as_bytes().to_vec(), rows.dtype());
    Ok(TensorData::from_bytes_vec(bytes, shape, dtype))
}

/// `data` on `device`, in f32 where the device lacks its dtype.
fn float_tensor<const D: usize>(data: &TensorData, device: &Device) -> Result<Tensor<D>, String> {
    if data.shape().len() != D {
        let shape = data.shape();
        return Err(format!("the input has shape {shape:?}, expected {D} axes"));
    }
    let is_there = device.supports_dtype(data.dtype());
    let dtype = if is_there { data.dtype() } else { DType::F32 };
    Ok(Tensor::from_data(data.clone(), (device, dtype)))
}

/// An error with its causes.
pub(crate) fn in_words(error: &Error) -> String {
    let (mut words, mut cause) = (error.to_string(), std::error::Error::source(error));
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
