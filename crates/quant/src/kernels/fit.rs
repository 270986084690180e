//! Scales and offsets that make rounded values come out near: least squares over a few candidates.
//!
//! For given codes q the best scale is the solution of a linear equation; for a given scale the best codes are the
//! nearest. Each candidate is a scale a little above or below the one that spans the values, rounded to codes and solved
//! again; the one of the smallest squared error wins. The candidates are those of ggml's `make_qx_quants` and
//! `make_qkx2_quants` in spirit; the error counted here is the plain one.

/// `value ≈ scale · code`, codes from `-max` to `max - 1` (`max` a power of two); the scale may be negative, so that the
/// value of the largest size can have the code `-max`.
#[must_use]
pub fn symmetric_scale(values: &[f32], max: f32) -> f32 {
    let largest = values.iter().fold(0.0_f32, |largest, value| {
        match value.abs() > largest.abs() {
            true => *value,
            false => largest,
        }
    });
    if largest == 0.0 {
        return 0.0;
    }
    let candidates = (-CANDIDATES..=CANDIDATES).map(|step| -(max + 0.1 * step as f32) / largest);
    let mut best = (0.0, 0.0);
    for inverse in candidates {
        let (mut products, mut squares) = (0.0, 0.0);
        for value in values {
            let code = (value * inverse).round_ties_even().clamp(-max, max - 1.0);
            products += value * code;
            squares += code * code;
        }
        // What the best scale for these codes takes off the squared error.
        let gain = products * products / squares;
        if squares > 0.0 && gain > best.0 {
            best = (gain, products / squares);
        }
    }
    best.1
}

/// `value ≈ scale · code - minimum`, codes from 0 to `max`, neither number negative: `[scale, minimum]`.
#[must_use]
pub fn affine(values: &[f32], max: f32) -> [f32; 2] {
    let least = values.iter().copied().fold(0.0, f32::min);
    let span = values.iter().copied().fold(f32::NEG_INFINITY, f32::max) - least;
    if span <= 0.0 {
        return [0.0, -least];
    }
    let mut best = (f32::INFINITY, [span / max, -least]);
    for step in -CANDIDATES..=CANDIDATES {
        let inverse = (max + 0.1 * step as f32) / span;
        let codes = || {
            let code = |value: &f32| {
                ((value - least) * inverse)
                    .round_ties_even()
                    .clamp(0.0, max)
            };
            values.iter().map(code)
        };
        let solved = solved(values, codes());
        let errors = values.iter().zip(codes());
        let error = errors.map(|(value, code)| {
            let error = solved[0] * code - solved[1] - value;
            error * error
        });
        let error: f32 = error.sum();
        if solved[0] > 0.0 && error < best.0 {
            best = (error, solved);
        }
    }
    best.1
}

/// The scale and minimum of the smallest squared error for these codes.
fn solved(values: &[f32], codes: impl Iterator<Item = f32>) -> [f32; 2] {
    let count = values.len() as f32;
    let (mut sum, mut code_sum, mut squares, mut products) = (0.0, 0.0, 0.0, 0.0);
    for (value, code) in values.iter().zip(codes) {
        sum += value;
        code_sum += code;
        squares += code * code;
        products += value * code;
    }
    let determinant = count * squares - code_sum * code_sum;
    if determinant > 0.0 {
        let scale = (count * products - code_sum * sum) / determinant;
        let minimum = (code_sum * products - squares * sum) / determinant;
        if minimum >= 0.0 {
            return [scale, minimum];
        }
    }
    // Without an offset.
    [
        if squares > 0.0 {
            products / squares
        } else {
            0.0
        },
        0.0,
    ]
}

/// Candidates to each side of the scale that spans the values.
const CANDIDATES: i8 = 9;
