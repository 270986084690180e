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
mod sdnq;
mod sdnq_layout;
mod sdnq_mutations;
mod sdnq_refused;
mod tensor;
mod tensor_file;
mod validation;
