//! Plain floats and integers, without blocks and scales.

mod bf16;
mod f16;
mod f32;
