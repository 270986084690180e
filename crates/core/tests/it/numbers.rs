//! Plain numbers for the tests: tensors of waves, their packed bytes, and comparisons.

use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor, TensorData};
use bytes::Bytes;
use overglaze_core::Weight;
use overglaze_patches::{Patch, TensorGroup, registry};
use overglaze_quant::{Parts, QuantizedTensor, format_by_name};

pub(crate) fn flex() -> Device {
    Device::flex()
}

#[expect(
    deprecated,
    reason = "Burn 0.22 deprecates ndarray, and we support it still"
)]
pub(crate) fn ndarray() -> Device {
    Device::ndarray()
}

/// Numbers between -1 and 1 that no two tensors share.
pub(crate) fn wave(shape: &[usize], seed: usize) -> TensorData {
    let num_values = shape.iter().product::<usize>();
    let values = (0..num_values)
        .map(|i| ((i * 7 + seed * 13 + 1) as f32 * 0.37).sin())
        .collect();
    TensorData::new::<f32, _>(values, shape)
}

/// A wave as a tensor of `dtype` on `device`.
pub(crate) fn tensor<const D: usize>(
    shape: [usize; D],
    seed: usize,
    device: &Device,
    dtype: DType,
) -> Tensor<D> {
    Tensor::from_data(wave(&shape, seed).convert_dtype(dtype), (device, dtype))
}

/// A wave in f32 on Flex.
pub(crate) fn plain<const D: usize>(shape: [usize; D], seed: usize) -> Tensor<D> {
    tensor(shape, seed, &flex(), DType::F32)
}

/// A wave rounded to `dtype`, in f32 on Flex.
pub(crate) fn rounded<const D: usize>(shape: [usize; D], seed: usize, dtype: DType) -> Tensor<D> {
    let data = wave(&shape, seed).convert_dtype(dtype);
    Tensor::from_data(data.convert_dtype(DType::F32), (&flex(), DType::F32))
}

/// `data` as a container with the type `tag` stores it.
pub(crate) fn stored(data: &TensorData, tag: &str) -> Bytes {
    let dtype = match tag {
        "BF16" => DType::BF16,
        "F16" => DType::F16,
        "Q8_0" => return packed_q8_0(data).into(),
        _ => DType::F32,
    };
    let bytes = data.clone().convert_dtype(dtype).as_bytes().to_vec();
    bytes.into()
}

/// A wave `[d_output, d_input]` packed in `format`.
pub(crate) fn packed(format: &str, shape: [usize; 2], seed: usize) -> Weight {
    let format = format_by_name(format).expect("the format is registered");
    let bytes = stored(&wave(&shape, seed), format.tags()[0]);
    let packed = QuantizedTensor::new(format, shape, Parts::values(bytes));
    Weight::Packed(packed.expect("the bytes are of that shape"))
}

/// The nearest `Q8_0` blocks, with the scale at `absmax / 127`.
fn packed_q8_0(data: &TensorData) -> Vec<u8> {
    let values: Vec<f32> = data.iter().collect();
    values.chunks(32).flat_map(q8_0_block).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the quotient is at most 127"
)]
fn q8_0_block(values: &[f32]) -> Vec<u8> {
    let absmax = values
        .iter()
        .fold(0.0_f32, |max, value| max.max(value.abs()));
    let scale = TensorData::from([absmax / 127.0]).convert_dtype(DType::F16);
    let rounded: f32 = scale.iter().next().expect("there is one scale");
    let quants = values
        .iter()
        .map(|value| (value / rounded).round().clamp(-127.0, 127.0) as i8);
    scale
        .as_bytes()
        .iter()
        .copied()
        .chain(quants.map(i8::cast_unsigned))
        .collect()
}

/// A low-rank patch `[d_output, fan_in]` of waves with alpha 1 and a bias residual.
pub(crate) fn lora([d_output, fan_in]: [usize; 2], rank: usize, seed: usize) -> Arc<dyn Patch> {
    let tensors = [
        ("lora_up.weight", wave(&[d_output, rank], seed)),
        ("lora_down.weight", wave(&[rank, fan_in], seed + 1)),
        ("lora_up.bias", wave(&[d_output], seed + 2)),
        ("alpha", TensorData::from([1.0_f32])),
    ];
    let tensors = tensors.map(|(key, data)| (String::from(key), data));
    let group = TensorGroup::new("layer", tensors.into());
    registry::load(group, &flex()).expect("the factors fit")
}

/// ΔW and Δb of [`lora`] at strength 1, by its definition.
pub(crate) fn lora_delta(shape: [usize; 2], rank: usize, seed: usize) -> (Tensor<2>, Tensor<1>) {
    let [d_output, fan_in] = shape;
    let scale = 1.0 / rank as f32;
    let product = plain([d_output, rank], seed).matmul(plain([rank, fan_in], seed + 1));
    let bias = plain([d_output], seed + 2);
    (product.mul_scalar(scale), bias.mul_scalar(scale))
}

pub(crate) fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.to_data().convert_dtype(DType::F32).iter().collect()
}

pub(crate) fn bits<const D: usize>(tensor: &Tensor<D>) -> Vec<u32> {
    values(tensor).into_iter().map(f32::to_bits).collect()
}

/// The largest relative error of rounding once to `dtype`: half the distance to the next number.
pub(crate) fn roundoff(dtype: DType) -> f32 {
    match dtype {
        DType::BF16 => 2.0_f32.powi(-8),
        DType::F16 => 2.0_f32.powi(-11),
        _ => 2.0_f32.powi(-24),
    }
}

/// The largest absolute value.
pub(crate) fn largest<const D: usize>(tensor: &Tensor<D>) -> f32 {
    let values = values(tensor).into_iter().map(f32::abs);
    values.fold(0.0, f32::max)
}

/// Compares values, wherever the tensors are, and makes sure that there is something to compare.
pub(crate) fn assert_close<const D: usize>(
    case: &str,
    found: &Tensor<D>,
    expected: &Tensor<D>,
    tolerance: f32,
) {
    assert_eq!(found.dims(), expected.dims(), "{case}");
    let (found, expected) = (values(found), values(expected));
    let is_something = expected.is_empty() || expected.iter().any(|value| *value != 0.0);
    assert!(is_something, "{case}: the expected values are all zero");
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let is_close = (found - expected).abs() <= tolerance;
        assert!(
            is_close,
            "{case}: value {index} is {found}, expected {expected}"
        );
    }
}

/// The message of what failed.
pub(crate) fn message<T>(result: Result<T, overglaze_core::Error>) -> String {
    match result {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error.to_string(),
    }
}
