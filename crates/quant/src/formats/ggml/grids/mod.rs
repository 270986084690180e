//! Grids: which combinations of values a code of the IQ formats can stand for, and how signs go with them.

#[cfg(feature = "cube")]
pub(super) mod device;
pub(super) mod one_bit;
pub(super) mod three_bits;
pub(super) mod two_bits;

/// The values of grids of two bits.
pub(super) static OF_TWO_BITS: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
/// The values of the grid of `IQ3_XXS`.
pub(super) static OF_THREE_BITS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];

/// Writes the eight values of `point`, each with its sign, times `scale`.
#[inline(always)]
pub(super) fn put_eight(point: u16, signs: u8, scale: f32, values: &mut [f32]) {
    for (k, value) in values.iter_mut().enumerate().take(8) {
        let magnitude = OF_TWO_BITS[usize::from(point >> (2 * k) & 3)];
        *value = scale * magnitude * sign(signs, k);
    }
}

/// Writes the four values of `point`, each with the sign from bit `first` on, times `scale`; `magnitudes` are the grid's.
#[inline(always)]
pub(super) fn put_four(
    point: u16,
    (signs, first): (u8, usize),
    scale: f32,
    magnitudes: &[f32; 8],
    values: &mut [f32],
) {
    for (k, value) in values.iter_mut().enumerate().take(4) {
        let magnitude = magnitudes[usize::from(point >> (3 * k) & 7)];
        *value = scale * magnitude * sign(signs, first + k);
    }
}

/// Writes the eight values of -1, 0 and 1 of `point`, each moved by `delta`, times `scale`.
#[inline(always)]
pub(super) fn put_levels(point: u16, delta: f32, scale: f32, values: &mut [f32]) {
    for (k, value) in values.iter_mut().enumerate().take(8) {
        let level = f32::from(point >> (2 * k) & 3) - 1.0;
        *value = scale * (level + delta);
    }
}

/// The eight signs behind seven bits: the eighth makes the number of negative ones even.
#[inline(always)]
pub(super) fn even_signs(bits: u32) -> u8 {
    let [bits, ..] = (bits & 0x7f).to_le_bytes();
    let parity = bits.count_ones().to_le_bytes()[0] & 1;
    bits | parity << 7
}

#[inline(always)]
fn sign(signs: u8, bit: usize) -> f32 {
    1.0 - 2.0 * f32::from(signs >> bit & 1)
}
