//! A base weight `[d_output, d_input]` that is in place: dense or packed on a device.

use burn::tensor::{DType, Device, FloatDType, Tensor};
use overglaze_quant::{QuantizedTensor, kernels::is_host};

use crate::{Traffic, dense};

/// A weight matrix that can be multiplied with now.
#[derive(Clone, Debug)]
pub enum Weight {
    /// Dense values `[d_output, d_input]` on some device.
    Dense(Tensor<2>),
    /// Packed bytes in host memory, and perhaps on a device; logical shape `[d_output, d_input]`.
    Packed(QuantizedTensor),
}

impl Weight {
    /// Logical shape `[d_output, d_input]`.
    #[must_use]
    pub fn shape(&self) -> [usize; 2] {
        match self {
            Self::Dense(weight) => weight.dims(),
            Self::Packed(weight) => weight.shape(),
        }
    }

    /// Bytes of the stored form.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        match self {
            Self::Dense(weight) => weight.shape().num_elements() * weight.dtype().size(),
            Self::Packed(weight) => weight.num_bytes(),
        }
    }

    /// The same values packed, where a format has their dtype.
    pub(crate) fn packed(self) -> Self {
        let Self::Dense(weight) = &self else {
            return self;
        };
        QuantizedTensor::of_dense(weight).map_or(self, Self::Packed)
    }

    /// Whether the weight can be decoded, and not only be multiplied with.
    pub(crate) fn shows_values(&self) -> bool {
        match self {
            Self::Dense(_) => true,
            Self::Packed(weight) => weight.format().has_values(),
        }
    }

    /// Name of the format the values are stored in.
    pub(crate) fn format_name(&self) -> &'static str {
        match self {
            Self::Dense(weight) => weight.dtype().name(),
            Self::Packed(weight) => weight.format().name(),
        }
    }

    /// Whether a product with an input on `device` needs the weight copied first.
    #[must_use]
    pub fn needs_move(&self, device: &Device) -> bool {
        match self {
            Self::Dense(weight) => weight.device() != *device,
            Self::Packed(weight) => {
                !is_host(device) && weight.device().is_none_or(|own| own != *device)
            }
        }
    }

    /// Whether the stored dtype differs from `dtype`; packed weights are decoded inside the product
    /// and never need a cast.
    #[must_use]
    pub fn needs_cast(&self, dtype: DType) -> bool {
        matches!(self, Self::Dense(weight) if weight.dtype() != dtype)
    }

    /// The dtype the dense values are kept in on `device`: the stored one where it is a float dtype the
    /// device has, else f32.
    #[must_use]
    pub fn dense_dtype(&self, device: &Device) -> DType {
        let stored = match self {
            Self::Dense(weight) => Some(weight.dtype()),
            Self::Packed(weight) => weight.format().dense_dtype(),
        };
        stored
            .filter(|dtype| device.supports_dtype(*dtype))
            .unwrap_or(DType::F32)
    }

    /// `input · Wᵀ`: `[rows, d_input] -> [rows, d_output]`, on the input's device and in its dtype.
    pub(crate) fn linear(&self, input: Tensor<2>, traffic: &Traffic) -> Tensor<2> {
        match self {
            Self::Packed(weight) => {
                if self.needs_move(&input.device()) {
                    traffic.count_decode();
                }
                self.count_upload(&input.device(), input.dtype(), traffic);
                weight.linear(input)
            }
            Self::Dense(weight) => {
                let weight = dense::aligned(weight.clone(), &input.device(), traffic);
                dense::product(input, weight.transpose())
            }
        }
    }

    /// The values `[d_output, d_input]` in `dtype` on `device`: a copy unless they are already so; `traffic`
    /// is told when it crosses devices.
    #[must_use]
    pub fn to_dense(&self, device: &Device, dtype: FloatDType, traffic: &Traffic) -> Tensor<2> {
        match self {
            Self::Dense(weight) => dense::cast(
                dense::aligned(weight.clone(), device, traffic),
                dtype.into(),
            ),
            Self::Packed(weight) => {
                traffic.count_decode();
                self.count_upload(device, dtype.into(), traffic);
                weight.to_dense(device, dtype)
            }
        }
    }

    /// Where the weight is, in words.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Dense(weight) => format!("{:?}", weight.device()),
            Self::Packed(weight) => {
                let place = weight.device().map(|device| format!("{device:?}"));
                let place = place.unwrap_or_else(|| "the host".into());
                format!("{place} (packed as {})", weight.format().name())
            }
        }
    }

    /// Counts what a decoded copy of a packed weight brings to a device with memory of its own.
    fn count_upload(&self, device: &Device, dtype: DType, traffic: &Traffic) {
        if self.needs_move(device) {
            traffic.count_move(self.shape().iter().product::<usize>() * dtype.size());
        }
    }
}
