//! `overglaze-stream` with nothing but Burn: weights streamed through a budget, as tensors.
#![expect(clippy::print_stdout, reason = "an example program")]

use std::{error::Error, sync::Arc};

use burn::tensor::{AllocationProperty, Bytes, DType, Device, Tensor, TensorData};
use overglaze_stream::{
    MemorySource, Slot, StreamError, Streamable, Streamer, StreamerConfig, WeightSource,
};

/// A vector of f32 in the source.
struct Vector(String);

impl Streamable for Vector {
    type Resident = Tensor<1>;

    fn name(&self) -> &str {
        &self.0
    }

    fn num_bytes(&self) -> u64 {
        16
    }

    fn load(&self, source: &dyn WeightSource, mut slot: Slot) -> Result<Tensor<1>, StreamError> {
        source.read_into(&self.0, slot.as_mut_slice())?;
        let bytes = Bytes::from_shared(slot.freeze(), AllocationProperty::Other);
        Ok(Tensor::from_data(
            TensorData::from_bytes(bytes, [4], DType::F32),
            &Device::flex(),
        ))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut source = MemorySource::new("four vectors");
    for index in 0..4_u8 {
        let bytes: Vec<u8> = [f32::from(index); 4]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        source.insert(format!("layer.{index}"), "F32", vec![4], bytes.into())?;
    }
    let layers = (0..4)
        .map(|index| Vector(format!("layer.{index}")))
        .collect();

    // Room for two of the four: the others come and go while the model runs.
    let config = StreamerConfig {
        budget_bytes: 32,
        lookahead: 2,
        poison_released: false,
    };
    let streamer = Streamer::new(Arc::new(source), layers, config)?;
    for _step in 0..3 {
        for index in 0..4 {
            let vector = streamer.acquire(streamer.slot_id(index))?;
            println!(
                "layer {index} sums to {}",
                (*vector).clone().sum().into_scalar::<f32>()
            );
        }
    }
    let stats = streamer.stats();
    println!(
        "{} loads, peak {} of {} bytes",
        stats.loads, stats.peak_slot_bytes, stats.budget_bytes
    );
    Ok(())
}
