//! Area `layers`: unpatched layers with every mix of input and weight dtype.

use burn::{
    module::Param,
    nn::{Linear, LinearConfig},
    tensor::{DType, Device, Tensor, TensorData},
};
use overglaze_core::{PatchedLinear, Weight};

use super::{Refusal, against, expected_names};
use crate::{Case, Comparison};

/// Runs a linear case over the packed bytes and over a Burn layer, and takes the worse.
pub(crate) fn run(case: &Case, device: &Device) -> Result<Comparison, Refusal> {
    let kind = module_kind(case);
    if kind != "linear" {
        return Err(Refusal::Unsupported(format!("module `{kind}`")));
    }
    let layers = [
        packed_linear(case, device)?,
        burn_linear(case, device)?.into(),
    ];
    let mut worst: Option<Comparison> = None;
    for name in expected_names(case)? {
        for layer in &layers {
            let found = forward(layer, case, device)?;
            check_dtype(case, &found, device)?;
            let comparison = against(case, name, &found)?;
            worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
        }
    }
    worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
}

/// The `kind` in the case's `module`.
pub(crate) fn module_kind(case: &Case) -> String {
    case.json("module")["kind"]
        .as_str()
        .unwrap_or("unnamed")
        .to_owned()
}

/// The case's linear layer over the bytes of its file.
pub(crate) fn packed_linear(case: &Case, device: &Device) -> Result<PatchedLinear, String> {
    let bias = match case.has("param.bias") {
        true => Some(case.tensor::<1>("param.bias", device)?),
        false => None,
    };
    let weight = Weight::Packed(case.packed("param.weight")?);
    Ok(PatchedLinear::from_weights(weight, bias, device.clone()))
}

/// The case's linear layer as a Burn layer, which keeps weights `[d_input, d_output]`.
pub(crate) fn burn_linear(case: &Case, device: &Device) -> Result<Linear, String> {
    let weight = case.tensor::<2>("param.weight", device)?;
    let [d_output, d_input] = weight.dims();
    let mut linear = LinearConfig::new(d_input, d_output)
        .with_bias(false)
        .init(device);
    linear.weight = Param::from_tensor(weight.transpose());
    if case.has("param.bias") {
        linear.bias = Some(Param::from_tensor(case.tensor::<1>("param.bias", device)?));
    }
    Ok(linear)
}

/// The layer's output for `in.x`, whatever its rank.
pub(crate) fn forward(
    layer: &PatchedLinear,
    case: &Case,
    device: &Device,
) -> Result<TensorData, String> {
    fn ranked<const D: usize>(
        layer: &PatchedLinear,
        case: &Case,
        device: &Device,
    ) -> Result<TensorData, String> {
        let input: Tensor<D> = case.tensor("in.x", device)?;
        let output = layer
            .try_forward(input)
            .map_err(|error| error.to_string())?;
        Ok(output.into_data())
    }
    match case.rank("in.x") {
        1 => ranked::<1>(layer, case, device),
        2 => ranked::<2>(layer, case, device),
        3 => ranked::<3>(layer, case, device),
        4 => ranked::<4>(layer, case, device),
        rank => Err(format!("an input of {rank} dimensions")),
    }
}

/// The output dtype must be the case's, on devices that have it.
pub(crate) fn check_dtype(case: &Case, found: &TensorData, device: &Device) -> Result<(), String> {
    let Some(named) = case.meta("output_dtype") else {
        return Ok(());
    };
    let expected = match named.trim_start_matches("torch.") {
        "float32" => DType::F32,
        "float16" => DType::F16,
        "bfloat16" => DType::BF16,
        other => return Err(format!("output dtype `{other}`")),
    };
    if found.dtype() == expected || !device.supports_dtype(expected) {
        return Ok(());
    }
    Err(format!(
        "output dtype {:?}, expected {expected:?}",
        found.dtype()
    ))
}
