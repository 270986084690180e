//! Tests of the public API.

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod add_product;
mod bitsandbytes;
mod encoders;
mod formats;
mod linear;
mod packing;
mod plan;
mod plus_product;
mod scaled_bytes;
mod tensor;
mod tensor_file;
mod validation;
