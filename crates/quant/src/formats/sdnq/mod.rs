//! What SDNQ (SD.Next's quantizer) writes: codes of 1 to 8 bits, integers or small floats, with scales a row, a group or a
//! tensor, and what may lie over them.
//!
//! `value = scale · q` for signed integers and floats, `value = scale · q + zero_point` for unsigned ones, or `scale[q]`
//! where the scales are a codebook; then `+ svd_up · svd_down`; then turned by a Hadamard matrix along the row. The tensors of
//! a weight `x.weight` stand beside it as `x.scale`, `x.zero_point`, `x.svd_up`, `x.svd_down`, and, where scales and zero
//! points are codes themselves, `x.scale_2`, `x.scale_zero_point`, `x.zero_point_scale`, `x.zero_point_2`. What the codes
//! are stands in `quantization_config.json`; without it only whole bytes are read whose type tells. Scales that are no finite
//! numbers are read as they are, and the values are what the arithmetic makes of them. Source: sdnq 0.2.8,
//! <https://github.com/Disty0/sdnq>.

mod codes;
mod config;
mod decode;
#[cfg(feature = "cube")]
mod device;
mod encode;
mod find;
mod geometry;
mod layout;
mod number;
mod pattern;
mod scales;
mod sdnq_format;
mod svd;
mod turn;
