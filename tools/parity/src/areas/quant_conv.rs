//! Area `quant_conv`: convolutions over packed weights, alone and with a LoRA, in place and streamed.

use std::sync::Arc;

use burn::tensor::{Device, TensorData};
use overglaze_core::LoaderConfig;
use overglaze_stream::{MemorySource, WeightSource};

use super::{
    Refusal, against, expected_names,
    layers::BUDGET_BYTES,
    patches::{LAYER, run_forms_for},
    quant::decoded,
    sequence::{OutputDtype, forms_over_bytes, in_words},
};
use crate::{Case, Comparison, ModuleCase};

/// Compares every expected output and takes the worst.
pub(crate) fn run(case: &Case, device: &Device) -> Result<Comparison, Refusal> {
    let base = base(case)?;
    let module = ModuleCase::of(case).over(Arc::clone(&base));
    let mut worst: Option<Comparison> = None;
    for name in expected_names(case)? {
        expect_numbers(case, name)?;
        let comparison = match name {
            "out.dequant" => compared(case, name, decoded(case, &*base, (WEIGHT, name), device)?)?,
            "out.y" => compared(case, name, unpatched(case, &module, device)?)?,
            "out.y_lora" => {
                let forms = forms_over_bytes(&[(LAYER.to_owned(), module.clone())], device)?;
                run_forms_for(case, device, (vec![name], OutputDtype::OfInput), forms)?
            }
            _ => return Err(Refusal::Unsupported(format!("the output `{name}`"))),
        };
        worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
    }
    worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
}

/// The layer's parameters: those of the case, or of the GGUF file beside it under the layer's own name.
fn base(case: &Case) -> Result<Arc<dyn WeightSource>, Refusal> {
    let Some(file) = case.meta("file") else {
        return Ok(Arc::clone(case.source()));
    };
    let layer = case.meta("layer").unwrap_or_default();
    let file = overglaze_core::open(&case.folder.join(file)).map_err(in_words)?;
    let mut source = MemorySource::new(&*case.name);
    for parameter in ["weight", "bias"] {
        let name = format!("{layer}.{parameter}");
        let entry = file.entries().get(&name);
        let entry = entry.ok_or_else(|| Refusal::Failed(format!("no tensor `{name}`")))?;
        let bytes = file.read(&name).map_err(in_words)?;
        let own_name = format!("param.{parameter}");
        let inserted = source.insert(own_name, &*entry.tag, &*entry.shape, bytes);
        inserted.map_err(in_words)?;
    }
    Ok(Arc::new(source))
}

/// The layer's output without patches, over its bytes in place and streamed.
fn unpatched(
    case: &Case,
    module: &ModuleCase<'_>,
    device: &Device,
) -> Result<Vec<TensorData>, Refusal> {
    let input = case.data("in.x")?;
    let configs = [
        LoaderConfig::resident(device.clone()),
        LoaderConfig::streamed(device.clone(), BUDGET_BYTES),
    ];
    let outputs = configs.map(|config| Ok(module.load(config)?.forward(&input, device)?));
    outputs.into_iter().collect()
}

fn compared(case: &Case, name: &str, found: Vec<TensorData>) -> Result<Comparison, Refusal> {
    let mut worst: Option<Comparison> = None;
    for found in found {
        let comparison = against(case, name, &found)?;
        worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
    }
    worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
}

/// An expectation of zeros would be met by a layer that computes nothing.
fn expect_numbers(case: &Case, name: &str) -> Result<(), Refusal> {
    let expected = case.data(name)?;
    match expected.iter::<f32>().any(|value| value != 0.0) {
        true => Ok(()),
        false => Err(Refusal::Failed(format!("`{name}` is all zeros"))),
    }
}

const WEIGHT: &str = "param.weight";
