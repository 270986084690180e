//! `overglaze-patches` with nothing but Burn: a patch from two tensors, applied to an activation.
#![expect(clippy::print_stdout, reason = "an example program")]

use std::{collections::BTreeMap, error::Error};

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use overglaze_patches::{LayerShape, TensorGroup, registry};

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::flex();
    let tensors = BTreeMap::from([
        (
            "lora_down.weight".to_owned(),
            TensorData::from([[1.0_f32, 0.0, 2.0]]),
        ),
        (
            "lora_up.weight".to_owned(),
            TensorData::from([[0.5_f32], [-1.0]]),
        ),
    ]);
    let group = TensorGroup::new("proj", tensors);

    // The kind is found from the keys alone.
    let patch = registry::load(group, &device)?;
    patch.check(&LayerShape::linear(2, 3))?;
    let patch = patch.to_device(&device, FloatDType::F32);

    let input = Tensor::<2>::from_floats([[1.0, 1.0, 1.0]], &device);
    let factors = patch.low_rank().ok_or("a LoRA has thin factors")?;
    let narrow = input.matmul(factors.down.transpose());
    let residual = narrow.matmul(factors.up.transpose());
    println!(
        "a {} patch adds {:?}",
        patch.kind(),
        residual.into_data().iter::<f32>().collect::<Vec<_>>()
    );
    Ok(())
}
