//! A frozen base weight: in place for good, or leased from a streamer for one forward pass.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use bytes::Bytes;
use overglaze_quant::{Parts, QuantFormat, QuantizedTensor, kernels::is_host};
use overglaze_stream::{Lease, Slot, StreamError, Streamable, Streamer, WeightSource};

use crate::{Error, Weight};

/// The parameters of one layer, in place.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// Weight `[d_output, d_input]`.
    pub weight: Weight,
    /// Bias `[d_output]`.
    pub bias: Option<Tensor<1>>,
}

/// Where the frozen parameters of a layer are.
#[derive(Clone)]
pub enum FrozenWeight {
    /// In place as long as the layer lives; clones of the layer share them.
    Resident(Arc<LayerWeights>),
    /// In a streamer, which has them in place while a lease lives.
    Streamed(StreamedWeight),
}

/// A place in a model's streamer.
#[derive(Clone, Debug)]
pub struct StreamedWeight {
    pub(crate) streamer: Arc<OnceLock<Arc<Streamer<LayerSpec>>>>,
    pub(crate) index: usize,
    pub(crate) shape: [usize; 2],
}

impl FrozenWeight {
    /// Logical shape `[d_output, d_input]`; nothing is loaded to tell it.
    #[must_use]
    pub fn shape(&self) -> [usize; 2] {
        match self {
            Self::Resident(weights) => weights.weight.shape(),
            Self::Streamed(streamed) => streamed.shape,
        }
    }

    /// Has the parameters in place until the answer is dropped.
    ///
    /// # Errors
    /// [`Error::Stream`] when they cannot be loaded.
    ///
    /// # Panics
    /// When [`LayerLoader::finish`](crate::LayerLoader::finish) has not been called yet.
    pub fn acquire(&self) -> Result<WeightRef, Error> {
        match self {
            Self::Resident(weights) => Ok(WeightRef::Shared(Arc::clone(weights))),
            Self::Streamed(streamed) => {
                let streamer = streamed
                    .streamer
                    .get()
                    .expect("`LayerLoader::finish` starts the streamer before a model is used");
                let lease = streamer.acquire(streamer.slot_id(streamed.index))?;
                Ok(WeightRef::Leased(lease))
            }
        }
    }
}

impl fmt::Debug for FrozenWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self {
            Self::Resident(_) => "resident",
            Self::Streamed(_) => "streamed",
        };
        write!(f, "FrozenWeight({place}, {:?})", self.shape())
    }
}

/// Parameters that stay in place while this lives.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack for one forward pass; a box would allocate in every pass"
)]
pub enum WeightRef {
    /// Assembled for this use from Burn parameters (shared tensors, no copy).
    Owned(LayerWeights),
    /// Shared with every clone of the layer.
    Shared(Arc<LayerWeights>),
    /// Leased from a streamer.
    Leased(Lease<LayerSpec>),
}

impl Deref for WeightRef {
    type Target = LayerWeights;

    fn deref(&self) -> &LayerWeights {
        match self {
            Self::Owned(weights) => weights,
            Self::Shared(weights) => weights,
            Self::Leased(lease) => lease,
        }
    }
}

impl fmt::Debug for WeightRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeightRef({:?})", self.weight.shape())
    }
}

/// What to read for one layer, and where to put it; the streamer's unit.
#[derive(Clone, Debug)]
pub struct LayerSpec {
    pub(crate) path: String,
    pub(crate) weight: TensorSpec,
    pub(crate) bias: Option<TensorSpec>,
    pub(crate) device: Device,
}

/// One tensor of a source whose format and shape have been checked.
#[derive(Clone, Debug)]
pub(crate) struct TensorSpec {
    pub(crate) name: String,
    pub(crate) format: &'static dyn QuantFormat,
    /// `[d_output, d_input]`; a vector of n values is `[1, n]`.
    pub(crate) shape: [usize; 2],
    pub(crate) num_bytes: usize,
}

impl LayerSpec {
    /// Builds the parameters over `weight` and `bias` bytes as they stand in the source.
    pub(crate) fn build(&self, weight: Bytes, bias: Option<Bytes>) -> Result<LayerWeights, Error> {
        let packed = self.weight.packed(weight)?;
        let bias = match (&self.bias, bias) {
            (Some(spec), Some(bytes)) => Some(spec.vector(bytes, &self.device)?),
            _ => None,
        };
        let weight = if is_host(&self.device) {
            Weight::Packed(packed)
        } else {
            Weight::Dense(packed.to_dense(&self.device, device_dtype(&self.device)))
        };
        Ok(LayerWeights { weight, bias })
    }
}

impl TensorSpec {
    fn packed(&self, bytes: Bytes) -> Result<QuantizedTensor, Error> {
        QuantizedTensor::new(self.format, self.shape, Parts::values(bytes)).map_err(|source| {
            Error::Quant {
                tensor: self.name.clone(),
                source,
            }
        })
    }

    /// The values as an f32 vector on `device`.
    pub(crate) fn vector(&self, bytes: Bytes, device: &Device) -> Result<Tensor<1>, Error> {
        let packed = self.packed(bytes)?;
        let length = self.shape[0] * self.shape[1];
        let mut values = vec![0.0_f32; length];
        packed.decode_rows(0..self.shape[0], &mut values);
        Ok(Tensor::from_data(
            TensorData::new(values, [length]),
            (device, DType::F32),
        ))
    }
}

impl Streamable for LayerSpec {
    type Resident = LayerWeights;

    fn name(&self) -> &str {
        &self.path
    }

    fn num_bytes(&self) -> u64 {
        (self.bias_offset() + self.bias.as_ref().map_or(0, |bias| bias.num_bytes)) as u64
    }

    fn load(&self, source: &dyn WeightSource, mut slot: Slot) -> Result<LayerWeights, StreamError> {
        let offset = self.bias_offset();
        let (weight, rest) = slot.as_mut_slice().split_at_mut(offset);
        source.read_into(&self.weight.name, &mut weight[..self.weight.num_bytes])?;
        if let Some(bias) = &self.bias {
            source.read_into(&bias.name, &mut rest[..bias.num_bytes])?;
        }
        let bytes = slot.freeze();
        let weight = bytes.slice(..self.weight.num_bytes);
        let bias = self
            .bias
            .as_ref()
            .map(|bias| bytes.slice(offset..offset + bias.num_bytes));
        self.build(weight, bias).map_err(|error| StreamError::Load {
            layer: self.path.clone(),
            source: Box::new(error),
        })
    }
}

impl LayerSpec {
    /// The bias follows the weight at the next multiple of 64, so that both are aligned.
    fn bias_offset(&self) -> usize {
        match self.bias {
            Some(_) => self.weight.num_bytes.next_multiple_of(64),
            None => self.weight.num_bytes,
        }
    }
}

/// The dtype a weight is uploaded in: half the bytes where the device has it.
fn device_dtype(device: &Device) -> FloatDType {
    if device.supports_dtype(DType::BF16) {
        FloatDType::BF16
    } else {
        FloatDType::F32
    }
}
