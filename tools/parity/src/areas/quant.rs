//! Areas `quant_*`: packed weights decoded, bit for bit where the format is exact, and products with them.

use std::sync::Arc;

use burn::tensor::{Device, FloatDType, TensorData};
use bytes::Bytes;
use overglaze_core::{LayerLoader, LoaderConfig, packed_weight};
use overglaze_quant::QuantizedTensor;
use overglaze_stream::{MemorySource, WeightSource};

use super::{Refusal, against, expected_names, sequence::in_words};
use crate::{AnyLayer, Case, Comparison, case::dtype_of};

/// Compares every expected output, alone and on the way to `device`.
pub(crate) fn run(case: &Case, device: &Device) -> Result<Comparison, Refusal> {
    let mut worst: Option<Comparison> = None;
    for name in expected_names(case)? {
        for found in outputs(case, name, device)? {
            let comparison = against(case, name, &found)?;
            worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
        }
    }
    worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
}

/// What is computed here for the output `name`.
fn outputs(case: &Case, name: &str, device: &Device) -> Result<Vec<TensorData>, Refusal> {
    if case.has_meta("layout") {
        return tensor_of_file(case, name, device);
    }
    match name {
        "out.f32" => decoded(case, &*blocks(case)?, (WEIGHT, name), device),
        "out.dequant" => decoded(case, &**case.source(), ("param.weight", name), device),
        "out.y_of_dequant" => products(case, device),
        _ => {
            let Some(layer) = name.strip_prefix("out.dequant.") else {
                return Err(Refusal::Unsupported(format!("the output `{name}`")));
            };
            let weight = format!("param.{layer}.weight");
            decoded(case, &**case.source(), (&weight, name), device)
        }
    }
}

/// The tensor of the GGUF file beside the case: plain numbers as they stand, packed ones decoded.
fn tensor_of_file(case: &Case, name: &str, device: &Device) -> Result<Vec<TensorData>, Refusal> {
    let source = overglaze_core::open(&case.folder.join("tiny.gguf")).map_err(in_words)?;
    let tensor = name.strip_prefix("out.").unwrap_or(name);
    let expected = case.data(name)?;
    let entry = source.entries().get(tensor);
    let entry = entry.ok_or_else(|| Refusal::Failed(format!("no tensor `{tensor}`")))?;
    if entry.shape != expected.shape().to_vec() {
        let why = format!(
            "{tensor} has shape {:?}, expected {:?}",
            entry.shape,
            expected.shape()
        );
        return Err(Refusal::Failed(why));
    }
    if dtype_of(&entry.tag) == Some(expected.dtype()) {
        let bytes = source.read(tensor).map_err(in_words)?.to_vec();
        let found = TensorData::from_bytes_vec(bytes, entry.shape.clone(), expected.dtype());
        return Ok(vec![found]);
    }
    decoded(case, &*source, (tensor, name), device)
}

/// The weight's values as the host decodes them and as they arrive on `device`, in the shape and type of the output
/// `name`.
pub(super) fn decoded(
    case: &Case,
    source: &dyn WeightSource,
    (weight, name): (&str, &str),
    device: &Device,
) -> Result<Vec<TensorData>, Refusal> {
    let expected = case.data(name)?;
    let (packed, _) = packed_weight(source, weight).map_err(in_words)?;
    let [d_output, d_input] = packed.shape();
    let mut values = vec![0.0; d_output * d_input];
    packed.decode_rows(0..d_output, &mut values);
    let uploaded = packed.to_device(device).unwrap_or_else(|| packed.clone());
    let bytes = |weight: &QuantizedTensor| -> Vec<Bytes> {
        let parts = weight.parts().iter();
        parts.map(|part| part.bytes.clone()).collect()
    };
    if bytes(&uploaded.to_host()) != bytes(&packed) {
        let why = "its bytes come back from the device as others".to_owned();
        return Err(Refusal::Failed(why));
    }
    let uploaded = uploaded.to_dense(device, FloatDType::F32).into_data();
    let found = [TensorData::new(values, [d_output, d_input]), uploaded];
    let found = found.map(|found| {
        let found = found.convert_dtype(expected.dtype());
        shaped(&found, expected.shape())
    });
    found.into_iter().collect()
}

/// The layer's output, over its bytes in place and streamed.
fn products(case: &Case, device: &Device) -> Result<Vec<TensorData>, Refusal> {
    let input = case.data("in.x")?;
    let configs = [
        LoaderConfig::resident(device.clone()),
        LoaderConfig::streamed(device.clone(), BUDGET_BYTES),
    ];
    let outputs = configs.map(|config| {
        let mut loader = LayerLoader::new(Arc::clone(case.source()), config);
        let layer = loader.linear("param").map_err(in_words)?;
        let base = loader.finish().map_err(in_words)?;
        let output = AnyLayer::Linear(layer).forward(&input, device)?;
        drop(base);
        Ok(output)
    });
    outputs.into_iter().collect()
}

/// The case's bare blocks, under the type it names.
fn blocks(case: &Case) -> Result<Arc<dyn WeightSource>, Refusal> {
    let tag = case.meta("qtype");
    let tag = tag.ok_or_else(|| Refusal::Unsupported("a case without `qtype`".into()))?;
    let shape: Vec<usize> = case.data("out.f32")?.shape().to_vec();
    let bytes = Bytes::copy_from_slice(case.data("param.raw")?.as_bytes());
    let mut source = MemorySource::new(&*case.name);
    source.insert(WEIGHT, tag, shape, bytes).map_err(in_words)?;
    Ok(Arc::new(source))
}

fn shaped(data: &TensorData, shape: &[usize]) -> Result<TensorData, Refusal> {
    if data.num_elements() != shape.iter().product::<usize>() {
        let why = format!("shape {:?}, expected {shape:?}", data.shape());
        return Err(Refusal::Failed(why));
    }
    let bytes = data.as_bytes().to_vec();
    Ok(TensorData::from_bytes_vec(
        bytes,
        shape.to_vec(),
        data.dtype(),
    ))
}

const WEIGHT: &str = "weight";
/// Enough for any one of the cases' layers.
const BUDGET_BYTES: u64 = 1 << 20;
