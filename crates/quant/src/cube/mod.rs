//! Kernels for devices with a memory of their own, in `CubeCL`: one source for CUDA, Vulkan and the others.
//!
//! A weight is there as it is in its file: the bytes of its parts, in words of 32 bits. A format says how eight values are
//! read from them ([`DecodeEight`]); the kernels around that are the same for all.
#![expect(
    missing_docs,
    reason = "CubeCL's macro writes functions beside those in the source"
)]

pub(crate) mod bits;
mod dequantize;
mod linear;

use std::{fmt, marker::PhantomData, sync::Arc};

use burn::{
    backend::DispatchDevice,
    tensor::{DType, Device, FloatDType, Int, Shape, Tensor},
};
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
use cubecl::{
    ir::{ElemType, FloatKind},
    prelude::*,
};

use crate::DeviceKernels;

/// How a format's values are read from the words of a weight. It is compiled for the device, so it is limited to what `CubeCL`
/// knows.
#[cube]
pub trait DecodeEight: Send + Sync + 'static {
    /// The eight values from value `start` on, counted row by row over the matrix; `start` is a multiple of 8, and the last
    /// values may lie beyond the matrix.
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>);
}

/// The kernels of a format.
pub struct Kernels<F>(PhantomData<F>);

impl<F: DecodeEight> Kernels<F> {
    /// The kernels of the format `F`.
    #[must_use]
    pub fn shared() -> Arc<dyn DeviceKernels> {
        Arc::new(Self(PhantomData))
    }
}

impl<F> fmt::Debug for Kernels<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Kernels")
    }
}

impl<F: DecodeEight> DeviceKernels for Kernels<F> {
    fn run_on(&self, device: &Device) -> bool {
        matches!(device.as_dispatch(), DispatchDevice::Cube(_)) && device.supports_dtype(DType::U32)
    }

    fn dequantize(&self, words: Tensor<1, Int>, shape: [usize; 2], dtype: FloatDType) -> Tensor<2> {
        let output = dequantize::dequantize::<F>(primitive(words), shape, dtype);
        Tensor::from_primitive::<CubeBackend>(output)
    }

    fn linear(&self, words: Tensor<1, Int>, input: Tensor<2>, d_output: usize) -> Tensor<2> {
        let dtype = input.dtype();
        let input = input
            .cast(DType::F32)
            .try_into_primitive::<CubeBackend>()
            .expect("the input is where the words are");
        let output = linear::linear::<F>(primitive(words), input, d_output);
        Tensor::<2>::from_primitive::<CubeBackend>(output).cast(dtype)
    }
}

fn primitive(words: Tensor<1, Int>) -> CubeTensor {
    words
        .try_into_primitive::<CubeBackend>()
        .expect("words are uploaded to devices of CubeCL only")
}

/// A tensor of `shape` on the device of `beside`, to be written.
fn empty(beside: &CubeTensor, shape: [usize; 2], dtype: DType) -> CubeTensor {
    let num_bytes = shape[0] * shape[1] * dtype.size();
    let (client, device) = (beside.client.clone(), beside.device.clone());
    let memory = client.empty(num_bytes);
    CubeTensor::new_contiguous(client, device, Shape::from(shape), memory, dtype)
}

fn elem_type(dtype: FloatDType) -> ElemType {
    ElemType::Float(match dtype {
        FloatDType::F64 => FloatKind::F64,
        FloatDType::F32 => FloatKind::F32,
        FloatDType::Flex32 => FloatKind::Flex32,
        FloatDType::F16 => FloatKind::F16,
        FloatDType::BF16 => FloatKind::BF16,
    })
}

/// The numbers of a table, if there is one, two a word.
#[must_use]
pub fn table_words(tables: &[&[u16]]) -> Vec<u32> {
    let pairs = tables.iter().flat_map(|table| table.chunks(2));
    pairs
        .map(|pair| u32::from(pair[0]) | u32::from(pair.get(1).copied().unwrap_or(0)) << 16)
        .collect()
}

/// How kernels call the type of numbers that containers call `tag`; `None` where it is none that
/// [`Scalars`](crate::kernels::Scalars) has.
pub(crate) fn kind_of(tag: &str) -> Option<u32> {
    let kinds = [
        "F32", "F16", "BF16", "F64", "F8_E4M3", "F8_E5M2", "I8", "U8",
    ];
    (0..)
        .zip(kinds)
        .find_map(|(kind, known)| (known == tag).then_some(kind))
}

/// The numbers of the type `kind` that begin at word `start`, in f32, as a matrix of `shape`.
pub(crate) fn numbers(
    words: Tensor<1, Int>,
    start_and_kind: (usize, u32),
    shape: [usize; 2],
) -> Tensor<2> {
    let numbers = dequantize::numbers(primitive(words), start_and_kind, shape);
    Tensor::from_primitive::<CubeBackend>(numbers)
}
