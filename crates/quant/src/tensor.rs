//! A packed matrix and what one computes with it.

use std::{fmt, ops::Range};

use burn::tensor::{AllocationProperty, Bytes, Device, FloatDType, Tensor, TensorData};
use rayon::{
    iter::{IndexedParallelIterator, ParallelIterator},
    slice::ParallelSliceMut,
};

use crate::{
    Part, Parts, QuantError, QuantFormat,
    device_copy::DeviceCopy,
    formats_by_name,
    host_data::{from_f32, own_data, to_f32},
    kernels::{self, InputRows, PackedMatrix, Plan, WeightRows, is_host},
};

/// A weight matrix `[d_output, d_input]` in a packed format.
///
/// It is validated once, when it is made; everything after that computes without checks of the bytes.
/// Cloning shares the bytes.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use overglaze_quant::{Parts, QuantizedTensor, format_by_name};
///
/// let packed: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
/// let weight = QuantizedTensor::new(format_by_name("f32")?, [3, 2], Parts::values(packed.into()))?;
/// let input = Tensor::<2>::from_data([[1.0, 10.0]], &Device::flex());
/// weight.linear(input).into_data().assert_eq(&[[21.0f32, 43.0, 65.0]].into(), true);
/// # Ok::<(), overglaze_quant::QuantError>(())
/// ```
#[derive(Clone)]
pub struct QuantizedTensor {
    format: &'static dyn QuantFormat,
    shape: [usize; 2],
    parts: Parts,
    device_copy: Option<DeviceCopy>,
}

impl QuantizedTensor {
    /// A matrix of `shape` `[d_output, d_input]`.
    ///
    /// # Errors
    /// What [`QuantFormat::validate`] finds wrong with `parts`.
    pub fn new(
        format: &'static dyn QuantFormat,
        shape: [usize; 2],
        parts: Parts,
    ) -> Result<Self, QuantError> {
        format.validate(shape, &parts)?;
        Ok(Self {
            format,
            shape,
            parts,
            device_copy: None,
        })
    }

    /// The same matrix, whose packed bytes are also on `device`, where products and decoding then run; `None` where there
    /// are no kernels for its format: in host memory, or without the feature `cube`.
    #[must_use]
    pub fn to_device(&self, device: &Device) -> Option<Self> {
        let layout = self.format.device_words(self.shape, &self.parts)?;
        let copy = DeviceCopy::new(layout, self.shape, &self.parts, device)?;
        Some(Self {
            device_copy: Some(copy),
            ..self.clone()
        })
    }

    /// Bytes that [`to_device`](Self::to_device) takes on `device`; `None` as there.
    #[must_use]
    pub fn num_bytes_on(&self, device: &Device) -> Option<usize> {
        let layout = self.format.device_words(self.shape, &self.parts)?;
        layout.fits(self.shape, device).then(|| layout.num_bytes())
    }

    /// Where the packed bytes are besides host memory.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        self.device_copy.as_ref().map(DeviceCopy::device)
    }

    /// The same matrix in host memory alone, of the bytes that are on its device.
    #[must_use]
    pub fn to_host(&self) -> Self {
        let copy = self.device_copy.as_ref();
        let parts = copy.map_or_else(|| self.parts.clone(), |copy| copy.read_back(&self.parts));
        Self {
            parts,
            device_copy: None,
            ..self.clone()
        }
    }

    /// The values of a dense matrix `[d_output, d_input]`, as they are, in the format of its dtype; `None` where there
    /// is no such format.
    #[must_use]
    pub fn of_dense(matrix: &Tensor<2>) -> Option<Self> {
        Self::of_data(own_data(matrix.clone()))
    }

    /// As [`of_dense`](Self::of_dense).
    pub(crate) fn of_data(matrix: TensorData) -> Option<Self> {
        let dtype = Some(matrix.dtype());
        let mut formats = formats_by_name().into_iter();
        let format = formats.find(|format| format.dense_dtype() == dtype)?;
        let [d_output, d_input] = **matrix.shape() else {
            return None;
        };
        let bytes = bytes::Bytes::from_owner(Owner(matrix.into_bytes()));
        Self::new(format, [d_output, d_input], Parts::values(bytes)).ok()
    }

    /// How the matrix is packed.
    #[must_use]
    pub fn format(&self) -> &'static dyn QuantFormat {
        self.format
    }

    /// `[d_output, d_input]`.
    #[must_use]
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Bytes of all parts together.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.parts.num_bytes()
    }

    /// The packed bytes.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Decodes `rows` of the matrix into `values`, `[rows, d_input]`.
    ///
    /// # Panics
    /// If the matrix has no such rows, or `values` is not of that size.
    pub fn decode_rows(&self, rows: Range<usize>, values: &mut [f32]) {
        assert!(
            rows.end <= self.shape[0],
            "rows {rows:?} of a matrix {:?}",
            self.shape
        );
        assert_eq!(
            values.len(),
            rows.len() * self.shape[1],
            "wrong number of decoded values"
        );
        if !values.is_empty() {
            self.format
                .decode_rows(&WeightRows::new(&self.parts, self.shape[1], rows), values);
        }
    }

    /// The decoded matrix as a tensor `[d_output, d_input]`.
    ///
    /// Decodes everything, except where the packed bytes are a tensor of this `dtype` already: those are
    /// shared with the tensor.
    #[must_use]
    pub fn to_dense(&self, device: &Device, dtype: FloatDType) -> Tensor<2> {
        if let Some(copy) = self.copy_on(device) {
            return copy.dequantize(self.shape, dtype);
        }
        let data = self
            .shared_data(dtype)
            .unwrap_or_else(|| self.decoded(dtype));
        Tensor::from_data(data, (device, dtype.into()))
    }

    /// The decoded values `[d_output, d_input]`, each rounded once to `dtype`, in host memory.
    #[must_use]
    pub fn decoded(&self, dtype: FloatDType) -> TensorData {
        let [d_output, d_input] = self.shape;
        let mut values = vec![0.0; d_output * d_input];
        let chunk_len = (ROWS_PER_DECODE * d_input).max(1);
        values
            .par_chunks_mut(chunk_len)
            .enumerate()
            .for_each(|(chunk, values)| {
                let first = chunk * ROWS_PER_DECODE;
                self.decode_rows(first..d_output.min(first + ROWS_PER_DECODE), values);
            });
        from_f32(values, self.shape, dtype.into())
    }

    /// `input · weightᵀ`, on the input's device and in its type: `[rows, d_input] -> [rows, d_output]`.
    ///
    /// In host memory, and on a device it [was moved to](Self::to_device), the packed bytes are read in place, sums are f32,
    /// and a narrower output is rounded once. Other devices get a decoded copy of the weight for the time of the product.
    ///
    /// # Panics
    /// If the input's rows are not `d_input` long.
    #[must_use]
    pub fn linear(&self, input: Tensor<2>) -> Tensor<2> {
        let [d_output, d_input] = self.shape;
        let [num_rows, width] = input.dims();
        assert_eq!(
            width, d_input,
            "the input's rows and the weight's rows differ in length"
        );
        let (device, dtype) = (input.device(), input.dtype());
        if let Some(copy) = self.copy_on(&device) {
            return copy.linear(input, self.shape);
        }
        if !is_host(&device) {
            let weight = self.to_dense(&device, dtype.into());
            return input.matmul(weight.transpose());
        }
        let input = input.into_data();
        let mut output = vec![0.0; num_rows * d_output];
        self.linear_into(&to_f32(&input), &mut output);
        let output = from_f32(output, [num_rows, d_output], dtype);
        Tensor::from_data(output, (&device, dtype))
    }

    /// `output = input · weightᵀ` on row-major slices: `[rows, d_input] -> [rows, d_output]`.
    ///
    /// The result depends on the values and the number of rows, but not on threads or addresses.
    ///
    /// # Panics
    /// If the slices do not have the same number of rows.
    pub fn linear_into(&self, input: &[f32], output: &mut [f32]) {
        if let Some(input) = self.input_rows(input, output) {
            let plan = Plan::new(input.num_rows(), self.shape);
            kernels::linear(self.matrix(), input, output, plan);
        }
    }

    /// [`linear_into`](Self::linear_into) by the plainest loop over decoded rows, to test the others
    /// against.
    ///
    /// # Panics
    /// As [`linear_into`](Self::linear_into).
    pub fn linear_reference(&self, input: &[f32], output: &mut [f32]) {
        if let Some(input) = self.input_rows(input, output) {
            kernels::linear_reference(self.matrix(), input, output);
        }
    }

    fn copy_on(&self, device: &Device) -> Option<&DeviceCopy> {
        let copy = self.device_copy.as_ref();
        copy.filter(|copy| copy.device() == *device)
    }

    pub(crate) fn matrix(&self) -> PackedMatrix<'_> {
        PackedMatrix {
            format: self.format,
            shape: self.shape,
            parts: &self.parts,
        }
    }

    /// The input, or nothing where the output is all zeros; checks the sizes.
    pub(crate) fn input_rows<'a>(
        &self,
        input: &'a [f32],
        output: &mut [f32],
    ) -> Option<InputRows<'a>> {
        let [d_output, d_input] = self.shape;
        if d_output == 0 || d_input == 0 {
            output.fill(0.0);
            return None;
        }
        let input = InputRows::new(input, d_input);
        assert_eq!(
            output.len(),
            input.num_rows() * d_output,
            "the output has the wrong size"
        );
        Some(input)
    }

    /// The packed bytes themselves, where they are aligned values of `dtype`.
    fn shared_data(&self, dtype: FloatDType) -> Option<TensorData> {
        let stored = self
            .format
            .dense_dtype()
            .filter(|stored| *stored == dtype.into())?;
        let bytes = &self.parts.get(Part::VALUES)?.bytes;
        let is_native = cfg!(target_endian = "little");
        let is_aligned = bytes.as_ptr().addr() % stored.size() == 0;
        (is_native && is_aligned).then(|| {
            let bytes = Bytes::from_shared(bytes.clone(), AllocationProperty::Other);
            TensorData::from_bytes(bytes, self.shape, stored)
        })
    }
}

impl fmt::Debug for QuantizedTensor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("QuantizedTensor")
            .field("format", &self.format.name())
            .field("shape", &self.shape)
            .field("parts", &self.parts)
            .finish()
    }
}

/// Burn's bytes, to be shared.
struct Owner(Bytes);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Rows a thread decodes at a time.
const ROWS_PER_DECODE: usize = 64;
