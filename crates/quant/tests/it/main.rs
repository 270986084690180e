//! Tests of the public API.

mod formats;
mod linear;
mod packing;
mod plan;
mod tensor;
mod validation;
