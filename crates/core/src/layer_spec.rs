//! One layer of a source: what to read, and the form it takes on its device.
//!
//! In host memory a weight stays packed and is read in place. A device with memory of its own gets dense
//! values, and the bytes they were made from stay in the slot as long as they do: the budget counts the
//! slot, so an upload cannot escape it, and the stored bytes can still be hashed. That costs the bytes a
//! second time, in host memory.

use std::sync::Arc;

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use bytes::Bytes;
use overglaze_quant::{Parts, QuantFormat, QuantizedTensor, kernels::is_host};
use overglaze_stream::{Slot, StreamError, Streamable, WeightSource};

use crate::{Error, LayerWeights, Traffic, Weight};

/// What to read for one layer, and where to put it; the streamer's unit.
#[derive(Clone, Debug)]
pub struct LayerSpec {
    pub(crate) path: String,
    pub(crate) weight: TensorSpec,
    pub(crate) bias: Option<TensorSpec>,
    pub(crate) device: Device,
    pub(crate) form: Form,
    pub(crate) traffic: Arc<Traffic>,
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

/// The form a weight takes where it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The stored bytes, in host memory.
    Packed,
    /// Dense values of this dtype, copied to a device with memory of its own.
    Dense(FloatDType),
}

/// The parameters of a layer of a source, with the bytes they stand in.
#[derive(Clone, Debug)]
pub struct LoadedLayer {
    pub(crate) weights: LayerWeights,
    /// As stored; in a slot, they keep the slot counted.
    weight_bytes: Bytes,
    bias_bytes: Option<Bytes>,
    /// Names of their formats, an empty one for no bias.
    pub(crate) formats: [&'static str; 2],
}

impl LoadedLayer {
    /// The parameters.
    #[must_use]
    pub fn weights(&self) -> &LayerWeights {
        &self.weights
    }

    /// The bytes as the source stores them, the weight's first.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &[u8]> {
        [&self.weight_bytes]
            .into_iter()
            .chain(&self.bias_bytes)
            .map(AsRef::as_ref)
    }
}

impl LayerSpec {
    /// Names of the formats the weight and the bias are stored in; an empty one for no bias.
    pub(crate) fn formats(&self) -> [&'static str; 2] {
        let bias = self.bias.as_ref().map_or("", |bias| bias.format.name());
        [self.weight.format.name(), bias]
    }

    /// Builds the parameters over `weight` and `bias` bytes as they stand in the source. Copies to a device
    /// with memory of its own are counted.
    pub(crate) fn build(
        &self,
        weight_bytes: Bytes,
        bias_bytes: Option<Bytes>,
    ) -> Result<LoadedLayer, Error> {
        let packed = self.weight.packed(weight_bytes.clone())?;
        let bias = match (&self.bias, &bias_bytes) {
            (Some(spec), Some(bytes)) => {
                Some(spec.vector(bytes.clone(), &self.device, DType::F32)?)
            }
            _ => None,
        };
        let weight = match self.form {
            Form::Packed => Weight::Packed(packed),
            Form::Dense(dtype) => {
                self.resident_parts()
                    .for_each(|num_bytes| self.traffic.count_move(num_bytes));
                Weight::Dense(packed.to_dense(&self.device, dtype))
            }
        };
        Ok(LoadedLayer {
            weights: LayerWeights { weight, bias },
            weight_bytes,
            bias_bytes,
            formats: self.formats(),
        })
    }

    /// Bytes of weight and bias in the form they have on the device.
    fn resident_parts(&self) -> impl Iterator<Item = usize> {
        let weight = match self.form {
            Form::Packed => self.weight.num_bytes,
            Form::Dense(dtype) => self.weight.num_values() * DType::from(dtype).size(),
        };
        let bias = self.bias.as_ref().map(|bias| match self.form {
            Form::Packed => bias.num_bytes,
            Form::Dense(_) => bias.num_values() * DType::F32.size(),
        });
        [weight].into_iter().chain(bias)
    }

    /// Bytes of weight and bias as they stand in a slot.
    fn staged_bytes(&self) -> usize {
        self.bias_offset() + self.bias.as_ref().map_or(0, |bias| bias.num_bytes)
    }

    /// The bias follows the weight at the next multiple of 64, so that both are aligned.
    fn bias_offset(&self) -> usize {
        match self.bias {
            Some(_) => self.weight.num_bytes.next_multiple_of(64),
            None => self.weight.num_bytes,
        }
    }
}

impl Streamable for LayerSpec {
    type Resident = LoadedLayer;

    fn name(&self) -> &str {
        &self.path
    }

    /// What the budget is charged: in host memory the stored bytes; on another device the dense values, or
    /// the stored bytes where those are more, since the slot holds them first.
    fn num_bytes(&self) -> u64 {
        let resident = match self.form {
            Form::Packed => 0,
            Form::Dense(_) => self.resident_parts().sum(),
        };
        self.staged_bytes().max(resident) as u64
    }

    fn load(&self, source: &dyn WeightSource, mut slot: Slot) -> Result<LoadedLayer, StreamError> {
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

impl TensorSpec {
    fn packed(&self, bytes: Bytes) -> Result<QuantizedTensor, Error> {
        QuantizedTensor::new(self.format, self.shape, Parts::values(bytes)).map_err(|source| {
            Error::Quant {
                tensor: self.name.clone(),
                source,
            }
        })
    }

    /// The values as a vector of `dtype` on `device`.
    pub(crate) fn vector(
        &self,
        bytes: Bytes,
        device: &Device,
        dtype: DType,
    ) -> Result<Tensor<1>, Error> {
        let packed = self.packed(bytes)?;
        let mut values = vec![0.0_f32; self.num_values()];
        packed.decode_rows(0..self.shape[0], &mut values);
        Ok(Tensor::from_data(
            TensorData::new(values, [self.num_values()]),
            (device, dtype),
        ))
    }

    /// How many values there are; the format has checked that their f32 bytes can be counted.
    pub(crate) fn num_values(&self) -> usize {
        self.shape[0] * self.shape[1]
    }
}

impl Form {
    /// The form weights take on `device`: dense in half the bytes where it has bf16.
    pub(crate) fn on(device: &Device) -> Self {
        if is_host(device) {
            return Self::Packed;
        }
        if device.supports_dtype(DType::BF16) {
            Self::Dense(FloatDType::BF16)
        } else {
            Self::Dense(FloatDType::F32)
        }
    }
}

#[cfg(test)]
mod tests {
    use overglaze_quant::format_by_name;
    use overglaze_stream::{MemorySource, SlotPool};

    use super::*;

    /// A layer `[4, 32]` with a bf16 bias, made dense in `dtype` as on a device with memory of its own.
    fn uploaded(format: &str, num_bytes: usize, dtype: FloatDType) -> LayerSpec {
        let spec = |name: &str, format, shape, num_bytes| TensorSpec {
            name: name.into(),
            format: format_by_name(format).expect("it is registered"),
            shape,
            num_bytes,
        };
        LayerSpec {
            path: "fc".into(),
            weight: spec("weight", format, [4, 32], num_bytes),
            bias: Some(spec("bias", "bf16", [1, 4], 8)),
            device: Device::flex(),
            form: Form::Dense(dtype),
            traffic: Arc::default(),
        }
    }

    #[test]
    fn an_upload_is_charged_and_counted_until_it_is_dropped() {
        let (q8_0, f32) = (4 * 34, 4 * 4 * 32);
        for (format, stored, dtype, moved, charged) in [
            ("q8_0", q8_0, FloatDType::BF16, 2 * 128 + 16, 2 * 128 + 16),
            ("q8_0", q8_0, FloatDType::F32, 4 * 128 + 16, 4 * 128 + 16),
            // The slot holds the stored bytes, which are more.
            ("f32", f32, FloatDType::BF16, 2 * 128 + 16, 4 * 128 + 8),
        ] {
            let spec = uploaded(format, stored, dtype);
            assert_eq!(spec.num_bytes(), charged, "{format}");
            let mut source = MemorySource::new("memory");
            for (name, shape, num_bytes) in [("weight", vec![4, 32], stored), ("bias", vec![4], 8)]
            {
                let tag = if name == "bias" {
                    "BF16"
                } else {
                    spec.weight.format.tags()[0]
                };
                let inserted = source.insert(name, tag, shape, vec![1; num_bytes].into());
                inserted.expect("the size is right");
            }
            let pool = SlotPool::new(1024);
            let slot = pool.take(spec.num_bytes()).expect("there is room");
            let layer = spec.load(&source, slot).expect("it loads");
            assert!(matches!(layer.weights.weight, Weight::Dense(_)));
            assert_eq!(spec.traffic.moved_bytes(), moved, "{format}");
            assert_eq!(pool.ledger().live_bytes(), charged, "{format}");
            let stored = layer.stored().map(<[u8]>::len).collect::<Vec<_>>();
            assert_eq!(stored, [spec.weight.num_bytes, 8]);
            drop(layer);
            assert_eq!(pool.ledger().live_bytes(), 0, "{format}");
        }
    }
}
