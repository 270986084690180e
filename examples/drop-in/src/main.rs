//! A Burn model that takes patches: the type of one field is the only edit.
#![expect(clippy::print_stdout, reason = "an example program")]

use std::{collections::BTreeMap, error::Error};

use burn::{
    module::Module,
    nn::{Linear, LinearConfig, Relu},
    tensor::{Device, Tensor, TensorData},
};
use overglaze_core::{PatchedLayer, PatchedLinear};
use overglaze_patches::{TensorGroup, registry};

/// A user's own model. `hidden` was a `Linear`; nothing else is new.
#[derive(Module, Debug)]
struct Classifier {
    hidden: PatchedLinear,
    activation: Relu,
    output: Linear,
}

impl Classifier {
    fn new(device: &Device) -> Self {
        Self {
            hidden: LinearConfig::new(3, 4).init(device).into(),
            activation: Relu::new(),
            output: LinearConfig::new(4, 2).init(device),
        }
    }

    fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        self.output
            .forward(self.activation.forward(self.hidden.forward(input)))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::flex();
    let mut model = Classifier::new(&device);
    let input = Tensor::<2>::ones([1, 3], &device);
    let before = model.forward(input.clone()).into_data();
    println!(
        "parameters: {} (as the plain Burn model has)",
        model.num_params()
    );

    let tensors = BTreeMap::from([
        (
            "lora_down.weight".to_owned(),
            TensorData::from([[1.0_f32, 1.0, 1.0]]),
        ),
        (
            "lora_up.weight".to_owned(),
            TensorData::from([[3.0_f32], [3.0], [3.0], [3.0]]),
        ),
    ]);
    let patch = registry::load(TensorGroup::new("hidden", tensors), &device)?;
    model.hidden.add_patch("style", patch, 0.5)?;
    println!(
        "patched output differs: {}",
        model.forward(input.clone()).into_data() != before
    );

    model.hidden.remove_patch("style");
    println!(
        "restored bit for bit: {}",
        model.forward(input).into_data() == before
    );
    Ok(())
}
