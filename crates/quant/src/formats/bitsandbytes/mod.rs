//! What bitsandbytes writes: `NF4` and `FP4` with one scale a block of values, and `LLM.int8` with one a row.

mod four_bit;
#[cfg(feature = "cube")]
mod four_bit_device;
mod int8;
mod quant_state;
mod scales;
