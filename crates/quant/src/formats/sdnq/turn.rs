//! Turning values by a Hadamard matrix: sums and differences that spread outliers over a row. It is its own inverse.
//!
//! For powers of four the matrix is a Kronecker product of
//! ```text
//!  1  1  1 -1
//!  1  1 -1  1
//!  1 -1  1  1
//! -1  1  1  1
//! ```
//! and for other powers of two of `1 1 / 1 -1`; both over the square root of their size.

/// Multiplies `values`, a power of two of them, with the matrix of their number.
pub(super) fn turn(values: &mut [f32]) {
    let is_power_of_four = values.len().trailing_zeros().is_multiple_of(2);
    let mut width = 1;
    while width < values.len() {
        if is_power_of_four {
            values
                .chunks_exact_mut(4 * width)
                .for_each(|block| turn_four(block, width));
            width *= 4;
        } else {
            values
                .chunks_exact_mut(2 * width)
                .for_each(|block| turn_two(block, width));
            width *= 2;
        }
    }
    let factor = (values.len() as f32).sqrt().recip();
    values.iter_mut().for_each(|value| *value *= factor);
}

/// The longest runs SDNQ turns in rows of `channels` values if it may take `wanted`; 1 for none.
pub(super) fn turned_len(channels: usize, wanted: usize) -> usize {
    let most = channels.min(wanted);
    let mut len = most.checked_next_power_of_two().unwrap_or(1);
    while !channels.is_multiple_of(len) {
        len /= 2;
    }
    if len >= 4 { len } else { 1 }
}

fn turn_two(block: &mut [f32], width: usize) {
    let (low, high) = block.split_at_mut(width);
    for (low, high) in low.iter_mut().zip(high) {
        (*low, *high) = (*low + *high, *low - *high);
    }
}

fn turn_four(block: &mut [f32], width: usize) {
    for at in 0..width {
        let [a, b, c, d] = [0, 1, 2, 3].map(|quarter| block[quarter * width + at]);
        let turned = [a + b + c - d, a + b - c + d, a - b + c + d, b + c + d - a];
        for (quarter, value) in turned.into_iter().enumerate() {
            block[quarter * width + at] = value;
        }
    }
}
