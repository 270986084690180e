//! Starting noise from a seed.
//!
//! Standard normal values by Box and Muller from `ChaCha8`, which is the same on every machine and in every
//! version. `PyTorch`'s generator is another one, so the same seed gives other pictures there.

use std::f64::consts::TAU;

use overglaze_models::rounded;
use rand::{Rng, SeedableRng, rngs::ChaCha8Rng};

/// Noise `[rows, row_len]`: row `i` is that of `seed + i`, whatever the other rows are.
#[must_use]
pub fn seeded_noise(seed: u64, rows: usize, row_len: usize) -> Vec<f32> {
    (0..rows as u64)
        .flat_map(|row| row_noise(seed.wrapping_add(row), row_len))
        .collect()
}

fn row_noise(seed: u64, len: usize) -> Vec<f32> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    let mut values = Vec::with_capacity(len + 1);
    while values.len() < len {
        let radius = (-2.0 * uniform(&mut generator).ln()).sqrt();
        let (sine, cosine) = (TAU * uniform(&mut generator)).sin_cos();
        values.extend([rounded(radius * cosine), rounded(radius * sine)]);
    }
    values.truncate(len);
    values
}

/// Uniform on (0, 1], never 0, so that its logarithm is finite.
fn uniform(generator: &mut ChaCha8Rng) -> f64 {
    let bits = generator.next_u64() >> 11;
    (bits + 1) as f64 / (1_u64 << 53) as f64
}
