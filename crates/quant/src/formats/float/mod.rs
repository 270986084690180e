//! Plain floats and integers, without blocks and scales.

mod bf16;
mod description;
mod f16;
mod f32;
mod f64;
mod f8_e4m3;
mod f8_e5m2;
mod i16;
mod i32;
mod i64;
mod i8;
mod scaled_bytes;
