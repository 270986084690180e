//! Area `quant_gguf`: packed blocks of GGUF files decoded to f32, bit for bit.

use burn::tensor::{Device, FloatDType, TensorData};
use overglaze_quant::{Parts, QuantizedTensor, format_by_tag};

use super::{Refusal, against, expected_names};
use crate::{Case, Comparison};

/// Decodes `param.raw` by the format that the case's `qtype` names, alone and on the way to `device`.
pub(crate) fn run(case: &Case, device: &Device) -> Result<Comparison, Refusal> {
    let Some(tag) = case.meta("qtype") else {
        return Err(Refusal::Unsupported("a case without `qtype`".into()));
    };
    let format = format_by_tag(tag).map_err(|error| Refusal::Unsupported(error.to_string()))?;
    let shape = shape(case).ok_or_else(|| Refusal::Failed("its `shape` is no matrix".into()))?;
    let raw = case.data("param.raw")?;
    let parts = Parts::values(bytes::Bytes::copy_from_slice(raw.as_bytes()));
    let packed = QuantizedTensor::new(format, shape, parts)
        .map_err(|error| Refusal::Failed(error.to_string()))?;
    let mut values = vec![0.0; shape[0] * shape[1]];
    packed.decode_rows(0..shape[0], &mut values);
    let decoded = TensorData::new(values, shape);
    let uploaded = packed.to_dense(device, FloatDType::F32).into_data();
    let mut worst: Option<Comparison> = None;
    for name in expected_names(case)? {
        for found in [&decoded, &uploaded] {
            let comparison = against(case, name, found)?;
            worst = Some(worst.map_or(comparison, |worst| worst.worst(comparison)));
        }
    }
    worst.ok_or_else(|| Refusal::Failed("nothing to compare".into()))
}

fn shape(case: &Case) -> Option<[usize; 2]> {
    let shape = case.json("shape");
    let number = |index: usize| usize::try_from(shape.get(index)?.as_u64()?).ok();
    (shape.as_array()?.len() == 2).then_some([number(0)?, number(1)?])
}
