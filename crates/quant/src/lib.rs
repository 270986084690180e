//! Packed weight matrices, and products that read them in place.
//!
//! A [`QuantFormat`] says how blocks of values are packed; formats register themselves through
//! `inventory`, one file each. A [`QuantizedTensor`] is a matrix `[d_output, d_input]` in such a format
//! whose [`linear`](QuantizedTensor::linear) decodes tile by tile inside the product: no decoded copy
//! of the weight ever exists.
#![cfg_attr(
    feature = "cube",
    expect(
        clippy::cast_possible_truncation,
        reason = "an index on a device has 32 bits; without the feature the lint looks at all else"
    )
)]

mod add_product;
#[cfg(feature = "cube")]
pub mod cube;
mod device_copy;
mod encode;
mod error;
mod format;
pub mod formats;
mod found;
mod host_data;
mod int8_product;
pub mod kernels;
mod parts;
mod plus_product;
mod tensor;

pub use add_product::add_product;
pub use device_copy::{DeviceKernels, DeviceWords};
pub use encode::{Encode, StoredContent, StoredTensor, encoder_by_name, encoders_by_name};
pub use error::QuantError;
pub use format::{
    Block, FormatEntry, QuantFormat, expect_part, format_by_name, format_by_tag, formats_by_name,
    num_values, values_bytes,
};
pub use found::{FoundPart, FoundWeight, TensorFile, TensorHead, find_weight};
pub use int8_product::{OUTLIER_THRESHOLD, linear_int8};
#[doc(hidden)]
pub use inventory;
pub use parts::{Part, Parts};
pub use tensor::QuantizedTensor;
