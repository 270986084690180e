//! Points and signs of grids on a device.

use cubecl::prelude::*;

/// The magnitude of the lowest two bits of `point`, as [`OF_TWO_BITS`](super::OF_TWO_BITS) has it.
#[cube]
pub(in crate::formats::ggml) fn two_bit_magnitude(point: u32) -> f32 {
    let code = point & 3;
    f32::cast_from(17 * code + 8 + (code >> 1))
}

/// The eight signs behind seven bits: the eighth makes the number of negative ones even.
#[cube]
pub(in crate::formats::ggml) fn signs_of(bits: u32) -> u32 {
    let bits = bits & 127;
    bits | ((bits.count_ones() & 1) << 7)
}
