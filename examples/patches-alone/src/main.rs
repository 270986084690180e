//! `overglaze-patches` with nothing but Burn: a patch from two tensors, applied to an activation.
#![expect(clippy::print_stdout, reason = "an example program")]

use std::{collections::BTreeMap, error::Error};

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use overglaze_patches::{TensorGroup, registry};

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
    let group = TensorGroup {
        target: "proj".into(),
        tensors,
    };

    // The kind is found from the keys alone.
    let patch = registry::load(group, &device)?;
    patch.check([2, 3])?;
    let patch = patch.to_device(&device, FloatDType::F32);

    let input = Tensor::<2>::from_floats([[1.0, 1.0, 1.0]], &device);
    let residual = patch
        .sidecar_linear(input)
        .ok_or("a low-rank patch has a sidecar")?;
    println!(
        "a {} patch adds {:?}",
        patch.kind(),
        residual.into_data().iter::<f32>().collect::<Vec<_>>()
    );
    Ok(())
}
