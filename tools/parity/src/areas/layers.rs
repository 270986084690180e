//! Area `layers`: unpatched layers of every kind with every mix of input and weight dtype.

use burn::tensor::{DType, Device, TensorData};
use overglaze_core::LoaderConfig;

use super::{Refusal, against, expected_names};
use crate::{Case, Comparison, ModuleCase};

/// Runs a case over its bytes, in place and streamed, and over a Burn layer, and takes the worst.
pub(crate) fn run(case: &Case, device: &Device) -> Result<Comparison, Refusal> {
    let module = ModuleCase::of(case);
    if !module.is_supported() {
        let kind = module.kind();
        return Err(Refusal::Unsupported(format!("module `{kind}`")));
    }
    let layers = [
        module.load(LoaderConfig::resident(device.clone()))?,
        module.load(LoaderConfig::streamed(device.clone(), BUDGET_BYTES))?,
        module.over_burn(device)?,
    ];
    let input = case.data("in.x")?;
    let mut worst: Option<Comparison> = None;
    for name in expected_names(case)? {
        for layer in &layers {
            let found = layer.forward(&input, device)?;
            check_dtype(case, (name, &found), device)?;
            let comparison = against(case, name, &found)?;
            worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
        }
    }
    worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
}

/// The output dtype must be the one the case names, or that of the expected output, on devices that have it.
pub(super) fn check_dtype(
    case: &Case,
    (name, found): (&str, &TensorData),
    device: &Device,
) -> Result<(), String> {
    let expected = match case.meta("output_dtype") {
        None => case.data(name)?.dtype(),
        Some("torch.float32") => DType::F32,
        Some("torch.float16") => DType::F16,
        Some("torch.bfloat16") => DType::BF16,
        Some(other) => return Err(format!("output dtype `{other}`")),
    };
    if found.dtype() == expected || !device.supports_dtype(expected) {
        return Ok(());
    }
    Err(format!(
        "output dtype {:?}, expected {expected:?}",
        found.dtype()
    ))
}

/// Room for any layer of the cases.
pub(super) const BUDGET_BYTES: u64 = 1 << 20;
