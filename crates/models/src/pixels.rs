//! The demo's pixels: tokens are patches of a padded image, so decoding needs no network.
//!
//! A 28 × 28 image padded to 32 × 32, scaled to −1 … 1 and cut into 8 × 8 patches of 4 × 4: token t
//! is the patch in row t / 8 and column t mod 8, its 16 channels the pixels row by row.

use burn::tensor::Tensor;

use crate::ModelError;

/// The images `[batch, 28, 28]`, 0 (black) to 1, of the demo's tokens `[batch, 64, 16]`.
///
/// # Errors
/// [`ModelError::InputShape`] when the tokens have another shape.
pub fn decode(tokens: Tensor<3>) -> Result<Tensor<3>, ModelError> {
    let [batch, num_tokens, channels] = tokens.dims();
    if [num_tokens, channels] != [GRID * GRID, PATCH * PATCH] {
        return Err(ModelError::InputShape {
            input: "tokens",
            found: vec![batch, num_tokens, channels],
            expected: format!("[batch, {}, {}]", GRID * GRID, PATCH * PATCH),
        });
    }
    let patches: Tensor<5> = tokens.reshape([batch, GRID, GRID, PATCH, PATCH]);
    let padded: Tensor<3> =
        patches
            .permute([0, 1, 3, 2, 4])
            .reshape([batch, GRID * PATCH, GRID * PATCH]);
    let image = padded.narrow(1, MARGIN, SIDE).narrow(2, MARGIN, SIDE);
    Ok((image.clamp(-1.0, 1.0) + 1.0) * 0.5)
}

/// Tokens along an edge of the demo's image.
pub const GRID: usize = 8;

/// Pixels along an edge of the demo's image.
pub const SIDE: usize = 28;

/// Pixels along an edge of a patch.
const PATCH: usize = 4;

/// Padding on every side.
const MARGIN: usize = (GRID * PATCH - SIDE) / 2;
