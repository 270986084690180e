//! What bitsandbytes writes: `NF4` and `FP4` with one scale a block of values, and `LLM.int8` with one a row.

mod four_bit;
mod int8;
#[cfg(feature = "cube")]
mod on_device;
mod quant_state;
mod scales;
