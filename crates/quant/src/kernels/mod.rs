//! Products that read packed weights in place.
//!
//! [`QuantizedTensor::linear`](crate::QuantizedTensor::linear) cuts `[rows, d_input] · [d_output, d_input]ᵀ`
//! into tiles of the output, by a [`Plan`] that is a pure function of the shape, and spreads the tiles over
//! rayon's current pool. No sum is ever split between threads, so the result depends on the shape and the
//! machine's instruction set alone.

mod block;
mod coded;
mod device;
mod dot;
mod dot_groups;
pub mod fit;
mod input_rows;
mod int8;
mod linear;
mod lookup;
pub mod minifloat;
mod output_tile;
mod pack;
mod plan;
mod scalars;
mod unpack;
mod weight_rows;
mod widen;
mod written;

pub(crate) use block::dot_f32;
pub use coded::{Coded, decode_coded, dot_coded};
pub use device::is_host;
pub(crate) use dot::add_product;
pub use dot::{dot_decoded, dot_packed};
pub use input_rows::InputRows;
pub use int8::Int8Rows;
pub(crate) use int8::linear_int8;
pub(crate) use linear::{PackedMatrix, linear, linear_reference};
pub(crate) use lookup::look_up_floats;
pub use minifloat::minifloat;
pub(crate) use output_tile::OutputGrid;
pub use output_tile::OutputTile;
pub use pack::{Pack, packed_blocks};
pub use plan::{Path, Plan};
pub use scalars::Scalars;
pub use unpack::{Unpack, decode_packed, widen_f16};
pub use weight_rows::WeightRows;
pub(crate) use widen::{STEP_LEN, dot_bytes, widen_bytes};
pub(crate) use written::written_by_chunks;
