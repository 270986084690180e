//! From f64, where constants and angles are computed, to the f32 that tensors hold.

/// The f32 nearest to `value`.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to f32 is what is wanted"
)]
pub fn rounded(value: f64) -> f32 {
    value as f32
}
