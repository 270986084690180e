//! One layer of a source: what to read, and the form it takes on its device.
//!
//! In host memory a weight stays packed and is read in place. A device with memory of its own gets the packed bytes where
//! there are kernels for the format, else dense values, and the bytes they were made from stay in the slot as long as they
//! do: the budget counts the slot, so an upload cannot escape it, and the stored bytes can still be hashed. That costs the
//! bytes a second time, in host memory.

use std::sync::Arc;

use burn::tensor::{DType, Device, FloatDType};
use overglaze_quant::{Parts, QuantizedTensor, kernels::is_host};
use overglaze_stream::{Slot, StreamError, Streamable, WeightSource};

use crate::{
    Error, LayerWeights, Traffic, Weight,
    tensor_spec::{ALIGNMENT, TensorSpec},
};

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

/// The form a weight takes where it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The stored bytes, in host memory.
    Packed,
    /// The stored bytes, copied to a device with memory of its own, where they take so many bytes.
    Uploaded(usize),
    /// Dense values of this dtype, copied to a device with memory of its own.
    Dense(FloatDType),
}

/// The parameters of a layer of a source, with the bytes they stand in.
#[derive(Clone, Debug)]
pub struct LoadedLayer {
    pub(crate) weights: LayerWeights,
    /// As stored; in a slot, they keep the slot counted.
    weight_parts: Parts,
    bias_parts: Option<Parts>,
    /// Names of their formats, an empty one for no bias.
    pub(crate) formats: [&'static str; 2],
}

impl LoadedLayer {
    /// The parameters.
    #[must_use]
    pub fn weights(&self) -> &LayerWeights {
        &self.weights
    }

    /// The bytes as the source stores them, part by part, the weight's first.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &[u8]> {
        let parts = [&self.weight_parts].into_iter().chain(&self.bias_parts);
        parts.flat_map(Parts::iter).map(|part| &*part.bytes)
    }
}

impl LayerSpec {
    /// Names of the formats the weight and the bias are stored in; an empty one for no bias.
    pub(crate) fn formats(&self) -> [&'static str; 2] {
        let bias = self.bias.as_ref().map_or("", |bias| bias.format.name());
        [self.weight.format.name(), bias]
    }

    /// Builds the parameters over parts as they stand in the source. Copies to a device with memory of its own
    /// are counted.
    pub(crate) fn build(
        &self,
        weight_parts: Parts,
        bias_parts: Option<Parts>,
    ) -> Result<LoadedLayer, Error> {
        let packed = self.weight.packed(weight_parts.clone())?;
        let bias = match (&self.bias, &bias_parts) {
            (Some(spec), Some(parts)) => {
                Some(spec.vector(parts.clone(), &self.device, DType::F32)?)
            }
            _ => None,
        };
        let weight = match self.form {
            Form::Packed => Weight::Packed(packed),
            Form::Uploaded(_) => Weight::Packed(packed.to_device(&self.device).unwrap_or(packed)),
            Form::Dense(dtype) => Weight::Dense(packed.to_dense(&self.device, dtype)),
        };
        if self.form != Form::Packed {
            self.resident_parts()
                .for_each(|num_bytes| self.traffic.count_move(num_bytes));
        }
        Ok(LoadedLayer {
            weights: LayerWeights { weight, bias },
            weight_parts,
            bias_parts,
            formats: self.formats(),
        })
    }

    /// Bytes of weight and bias in the form they have on the device.
    fn resident_parts(&self) -> impl Iterator<Item = usize> {
        let weight = match self.form {
            Form::Packed => self.weight.num_bytes(),
            Form::Uploaded(num_bytes) => num_bytes,
            Form::Dense(dtype) => self.weight.num_values() * DType::from(dtype).size(),
        };
        let bias = self.bias.as_ref().map(|bias| match self.form {
            Form::Packed => bias.num_bytes(),
            Form::Uploaded(_) | Form::Dense(_) => bias.num_values() * DType::F32.size(),
        });
        [weight].into_iter().chain(bias)
    }

    /// Bytes of weight and bias as they stand in a slot, one after the other.
    fn staged_bytes(&self) -> usize {
        match &self.bias {
            Some(bias) => self.bias_offset() + bias.staged_bytes(),
            None => self.weight.staged_bytes(),
        }
    }

    /// Where the bias stands in a slot.
    fn bias_offset(&self) -> usize {
        self.weight.staged_bytes().next_multiple_of(ALIGNMENT)
    }
}

impl Streamable for LayerSpec {
    type Resident = LoadedLayer;

    fn name(&self) -> &str {
        &self.path
    }

    /// What the budget is charged: in host memory the stored bytes; on another device what is there, or the stored bytes
    /// where those are more, since the slot holds them first.
    fn num_bytes(&self) -> u64 {
        let resident = match self.form {
            Form::Packed => 0,
            Form::Uploaded(_) | Form::Dense(_) => self.resident_parts().sum(),
        };
        self.staged_bytes().max(resident) as u64
    }

    fn load(&self, source: &dyn WeightSource, mut slot: Slot) -> Result<LoadedLayer, StreamError> {
        let bias_offset = self.bias_offset();
        self.weight.stage(source, slot.as_mut_slice())?;
        if let Some(bias) = &self.bias {
            bias.stage(source, &mut slot.as_mut_slice()[bias_offset..])?;
        }
        let bytes = slot.freeze();
        let weight = self.weight.staged_parts(&bytes);
        let bias = self.bias.as_ref();
        let bias = bias.map(|bias| bias.staged_parts(&bytes.slice(bias_offset..)));
        self.build(weight, bias).map_err(|error| StreamError::Load {
            layer: self.path.clone(),
            source: Box::new(error),
        })
    }
}

impl Form {
    /// The form `weight` takes on `device`: floats as they are stored where the device has their type, other formats packed
    /// where there are kernels for them, else dense in half the bytes where the device has bf16.
    pub(crate) fn of(weight: &QuantizedTensor, device: &Device) -> Self {
        if is_host(device) {
            return Self::Packed;
        }
        let has = |dtype: &DType| device.supports_dtype(*dtype);
        let stored = weight.format().dense_dtype();
        if let Some(stored) = stored.filter(|stored| FLOATS.contains(stored)) {
            return Self::Dense(Some(stored).filter(has).unwrap_or(DType::F32).into());
        }
        match weight.num_bytes_on(device) {
            Some(num_bytes) => Self::Uploaded(num_bytes),
            None if has(&DType::BF16) => Self::Dense(FloatDType::BF16),
            None => Self::Dense(FloatDType::F32),
        }
    }
}

/// Types of floats that products on devices are made for.
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

#[cfg(test)]
mod tests {
    use overglaze_quant::format_by_name;
    use overglaze_stream::{MemorySource, SlotPool};

    use super::*;

    /// A layer `[4, 32]` with a bf16 bias, made dense in `dtype` as on a device with memory of its own.
    fn uploaded(format: &str, num_bytes: usize, dtype: FloatDType) -> LayerSpec {
        let spec = |name: &str, format, shape, num_bytes| {
            let format = format_by_name(format).expect("it is registered");
            TensorSpec::of_one_tensor(name, format, shape, num_bytes)
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
            assert_eq!(stored, [spec.weight.num_bytes(), 8]);
            drop(layer);
            assert_eq!(pool.ledger().live_bytes(), 0, "{format}");
        }
    }
}
