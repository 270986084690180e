//! A packed weight on a device with a memory of its own: the bytes of its parts, in words of 32 bits.

use std::{fmt, ops::Range, sync::Arc};

use burn::tensor::{AllocationProperty, Bytes, DType, Device, FloatDType, Int, Tensor, TensorData};

use crate::{Part, Parts};

/// The kernels that compute with a format's words on a device.
pub trait DeviceKernels: fmt::Debug + Send + Sync {
    /// Whether they run on `device`.
    fn run_on(&self, device: &Device) -> bool;

    /// The values of the matrix `shape` `[d_output, d_input]`, each rounded once to `dtype`.
    fn dequantize(&self, words: Tensor<1, Int>, shape: [usize; 2], dtype: FloatDType) -> Tensor<2>;

    /// `input · weightᵀ` for few rows: `[rows, d_input] -> [rows, d_output]`, in the input's type with f32 sums. `d_input` is a
    /// multiple of 8.
    fn linear(&self, words: Tensor<1, Int>, input: Tensor<2>, d_output: usize) -> Tensor<2>;
}

/// What a device gets for a weight, and the kernels for it.
#[derive(Clone, Debug)]
pub struct DeviceWords {
    kernels: Arc<dyn DeviceKernels>,
    /// Words before the parts: tables, and what kernels must know of the weight.
    head: Vec<u32>,
    /// The parts that follow, and which words they take.
    parts: Vec<(&'static str, Range<usize>)>,
}

impl DeviceWords {
    /// A table, then the part `values`.
    #[must_use]
    pub fn of_blocks(kernels: Arc<dyn DeviceKernels>, table: Vec<u32>, parts: &Parts) -> Self {
        let parts = places(&[Part::VALUES], parts, table.len());
        Self {
            kernels,
            head: table,
            parts,
        }
    }

    /// Some numbers, then the words at which each of `names` begins, then these parts; one that is not there begins at 0.
    #[must_use]
    pub fn of_parts(
        kernels: Arc<dyn DeviceKernels>,
        numbers: &[u32],
        names: &[&'static str],
        parts: &Parts,
    ) -> Self {
        let places = places(names, parts, numbers.len() + names.len());
        let start = |name: &&str| {
            let place = places.iter().find(|(placed, _)| placed == name);
            place.map_or(0, |(_, words)| {
                u32::try_from(words.start).unwrap_or(u32::MAX)
            })
        };
        Self {
            kernels,
            head: numbers
                .iter()
                .copied()
                .chain(names.iter().map(start))
                .collect(),
            parts: places,
        }
    }

    /// The same words for other kernels.
    #[must_use]
    pub fn with_kernels(self, kernels: Arc<dyn DeviceKernels>) -> Self {
        Self { kernels, ..self }
    }

    /// The word at which the part `name` begins; `None` where it is not there.
    #[must_use]
    pub fn start(&self, name: &str) -> Option<usize> {
        let place = self.parts.iter().find(|(placed, _)| *placed == name);
        place.map(|(_, words)| words.start)
    }

    /// Words in all.
    fn len(&self) -> usize {
        let end = self.parts.last().map(|(_, words)| words.end);
        end.unwrap_or(self.head.len())
    }

    pub(crate) fn num_bytes(&self) -> usize {
        self.len() * size_of::<u32>()
    }

    /// Whether the kernels run on `device` and can count the bytes and values of a matrix of this shape in 32 bits.
    pub(crate) fn fits(&self, [d_output, d_input]: [usize; 2], device: &Device) -> bool {
        let most = u32::MAX as usize - 8;
        self.num_bytes() <= most
            && (1..=most).contains(&d_output.saturating_mul(d_input))
            && self.kernels.run_on(device)
    }

    /// The words, of `parts`: a view of them where they are one part of whole words.
    fn words_of(&self, parts: &Parts) -> Bytes {
        if let ([], [(name, words)]) = (&*self.head, &*self.parts) {
            let bytes = parts.get(name).map(|part| part.bytes.clone());
            let bytes = bytes.unwrap_or_default();
            let is_aligned = bytes.as_ptr().addr().is_multiple_of(size_of::<u32>());
            if bytes.len() == words.len() * size_of::<u32>() && is_aligned {
                return Bytes::from_shared(bytes, AllocationProperty::Other);
            }
        }
        let mut all = Vec::with_capacity(self.len() * size_of::<u32>());
        all.extend(self.head.iter().flat_map(|word| word.to_le_bytes()));
        for (name, words) in &self.parts {
            all.extend_from_slice(parts.bytes(name));
            all.resize(words.end * size_of::<u32>(), 0);
        }
        Bytes::from_bytes_vec(all)
    }
}

/// Which words the parts called `names` take after `head_len` others.
fn places(
    names: &[&'static str],
    parts: &Parts,
    head_len: usize,
) -> Vec<(&'static str, Range<usize>)> {
    let mut start = head_len;
    let there = names
        .iter()
        .filter_map(|name| Some((*name, parts.get(name)?)));
    there
        .map(|(name, part)| {
            let words = start..start + part.bytes.len().div_ceil(size_of::<u32>());
            start = words.end;
            (name, words)
        })
        .collect()
}

/// A weight's words where they were uploaded to.
#[derive(Clone, Debug)]
pub(crate) struct DeviceCopy {
    layout: DeviceWords,
    words: Tensor<1, Int>,
}

impl DeviceCopy {
    /// `parts` of a weight of `shape` on `device`; `None` where the kernels do not run there, or cannot count so much.
    pub(crate) fn new(
        layout: DeviceWords,
        shape: [usize; 2],
        parts: &Parts,
        device: &Device,
    ) -> Option<Self> {
        if !layout.fits(shape, device) {
            return None;
        }
        let words = layout.words_of(parts);
        let words = TensorData::from_bytes(words, [layout.len()], DType::U32);
        let words = Tensor::from_data(words, (device, DType::U32));
        Some(Self { layout, words })
    }

    pub(crate) fn device(&self) -> Device {
        self.words.device()
    }

    pub(crate) fn dequantize(&self, shape: [usize; 2], dtype: FloatDType) -> Tensor<2> {
        let words = self.words.clone();
        self.layout.kernels.dequantize(words, shape, dtype)
    }

    /// `input · weightᵀ`, where a weight of `shape` `[d_output, d_input]` and the input are for the kernel.
    pub(crate) fn linear(&self, input: Tensor<2>, [d_output, d_input]: [usize; 2]) -> Tensor<2> {
        let words = self.words.clone();
        let num_rows = input.dims()[0];
        if (1..=MAX_KERNEL_ROWS).contains(&num_rows) && d_input.is_multiple_of(8) {
            return self.layout.kernels.linear(words, input, d_output);
        }
        let dtype = input.dtype().into();
        let weight = self.dequantize([d_output, d_input], dtype);
        input.matmul(weight.transpose())
    }

    /// The parts as they are on the device; their descriptions are those of `parts`.
    pub(crate) fn read_back(&self, parts: &Parts) -> Parts {
        let words = bytes::Bytes::from_owner(self.words.to_data().into_bytes().to_vec());
        let part = |part: &Part| {
            let place = self
                .layout
                .parts
                .iter()
                .find(|(name, _)| *name == part.name);
            let bytes = place.map_or_else(bytes::Bytes::new, |(_, place)| {
                let start = place.start * size_of::<u32>();
                words.slice(start..start + part.bytes.len())
            });
            Part {
                bytes,
                ..part.clone()
            }
        };
        Parts::new(parts.iter().map(part).collect())
    }
}

/// From here on a product on decoded values is faster.
const MAX_KERNEL_ROWS: usize = 8;
