//! Area `stacked`: patches over packed layers, by sidecar and merged.

use std::sync::Arc;

use burn::tensor::Device;
use overglaze_stream::{MemorySource, WeightSource};
use serde_json::json;

use super::{
    Refusal,
    patches::{LAYER, run_forms},
    sequence::{OutputDtype, forms_over_bytes, in_words},
};
use crate::{Case, Comparison, ModuleCase};

/// Runs a case over its packed bytes, in place and streamed, and takes the worst.
pub(crate) fn run(case: &Case, device: &Device) -> Result<Comparison, Refusal> {
    let module = ModuleCase::of(case).over(base(case)?);
    let forms = forms_over_bytes(&[(LAYER.to_owned(), module)], device)?;
    run_forms(case, device, OutputDtype::OfInput, forms)
}

/// The case's parameters as a file of that kind has them. Bare blocks get the type and shape a GGUF file states, and
/// SDNQ's tensors the configuration that stands beside its files.
fn base(case: &Case) -> Result<Arc<dyn WeightSource>, Refusal> {
    let base = case.meta("base").unwrap_or_default();
    let mut source = MemorySource::new(&*case.name);
    for (name, entry) in case.source().entries() {
        let Some(parameter) = name.strip_prefix("param.") else {
            continue;
        };
        let bytes = case.source().read(name).map_err(in_words)?;
        let inserted = match (parameter, base.strip_prefix("gguf_")) {
            ("raw", Some(tag)) => source.insert("param.weight", tag, matrix(case)?, bytes),
            _ => source.insert(name, &*entry.tag, &*entry.shape, bytes),
        };
        inserted.map_err(in_words)?;
    }
    if let Some(form) = base.strip_prefix("sdnq_") {
        let (dtype, has_svd) = match form.strip_suffix("_svd") {
            Some(dtype) => (dtype, true),
            None => (form, false),
        };
        let config = json!({"quant_method": "sdnq", "weights_dtype": dtype, "use_svd": has_svd});
        source.set_metadata("quantization_config", config.to_string());
    }
    Ok(Arc::new(source))
}

fn matrix(case: &Case) -> Result<Vec<usize>, Refusal> {
    let module = case.json("module");
    let size = |key: &str| usize::try_from(module[key].as_u64()?).ok();
    let shape = size("out_features").zip(size("in_features"));
    let (d_output, d_input) =
        shape.ok_or_else(|| Refusal::Failed("its `module` has no sizes".into()))?;
    Ok(vec![d_output, d_input])
}
