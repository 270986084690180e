//! Tensor data out of tensors, to f32 and back; the kernels compute in f32 alone.

use std::borrow::Cow;

use burn::tensor::{DType, Tensor, TensorData, bf16, f16};
use half::{slice::HalfFloatSliceExt, vec::HalfFloatVecExt};

use crate::kernels::is_host;

/// A tensor's data, to be kept. What `CubeCL` 0.11.3 reads from a device in wgpu may be overwritten by the next reads, so that is
/// copied.
pub(crate) fn own_data<const D: usize>(tensor: Tensor<D>) -> TensorData {
    let is_in_place = is_host(&tensor.device());
    let data = tensor.into_data();
    if is_in_place {
        return data;
    }
    let bytes = data.as_bytes().to_vec();
    TensorData::from_bytes_vec(bytes, data.shape().clone(), data.dtype())
}

/// The values of `data` in f32; borrowed where they are f32 already.
pub(crate) fn to_f32(data: &TensorData) -> Cow<'_, [f32]> {
    match data.dtype() {
        DType::F32 => Cow::Borrowed(data.as_slice().expect(ALIGNED)),
        DType::F16 => Cow::Owned(data.as_slice::<f16>().expect(ALIGNED).to_f32_vec()),
        DType::BF16 => Cow::Owned(data.as_slice::<bf16>().expect(ALIGNED).to_f32_vec()),
        _ => Cow::Owned(data.iter().collect()),
    }
}

/// Tensor data of `shape` and `dtype`; each value is rounded once.
pub(crate) fn from_f32(values: Vec<f32>, shape: [usize; 2], dtype: DType) -> TensorData {
    match dtype {
        DType::F16 => TensorData::new(Vec::<f16>::from_f32_slice(&values), shape),
        DType::BF16 => TensorData::new(Vec::<bf16>::from_f32_slice(&values), shape),
        _ => TensorData::new(values, shape),
    }
}

const ALIGNED: &str = "tensors are aligned to their type";
