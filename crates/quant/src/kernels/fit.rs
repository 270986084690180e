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
    let candidates =
        (-CANDIDATES..=CANDIDATES).map(|step| -(max + 0.1 * f32::from(step)) / largest);
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
    let [scale, start] = best(values, least, max, |sums| match sums.line() {
        Some([scale, start]) if start <= 0.0 => Some([scale, start]),
        _ => Some([sums.ray()?, 0.0]),
    });
    [scale, -start]
}

/// `value ≈ scale · code + start`, codes from 0 to `max`: `[scale, start]`.
#[must_use]
pub fn line(values: &[f32], max: f32) -> [f32; 2] {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    best(values, least, max, Sums::line)
}

/// The best scale and start for codes that begin about at `least`; `solve` finds them for given codes.
fn best(
    values: &[f32],
    least: f32,
    max: f32,
    solve: impl Fn(&Sums) -> Option<[f32; 2]>,
) -> [f32; 2] {
    let span = values.iter().copied().fold(f32::NEG_INFINITY, f32::max) - least;
    if !(span > 0.0 && span.is_finite()) {
        return [0.0, least];
    }
    let mut best = (f32::INFINITY, [span / max, least]);
    for step in -CANDIDATES..=CANDIDATES {
        let inverse = (max + 0.1 * f32::from(step)) / span;
        let code = |value: &f32| {
            ((value - least) * inverse)
                .round_ties_even()
                .clamp(0.0, max)
        };
        let pairs = || values.iter().map(|value| (*value, code(value)));
        let Some([scale, start]) = solve(&Sums::of(pairs())) else {
            continue;
        };
        let errors = pairs().map(|(value, code)| {
            let error = scale * code + start - value;
            error * error
        });
        let error: f32 = errors.sum();
        if scale > 0.0 && error < best.0 {
            best = (error, [scale, start]);
        }
    }
    best.1
}

/// Sums over values and their codes.
#[derive(Clone, Copy, Default)]
struct Sums {
    count: f32,
    values: f32,
    codes: f32,
    squares: f32,
    products: f32,
}

impl Sums {
    fn of(pairs: impl Iterator<Item = (f32, f32)>) -> Self {
        let mut sums = Self::default();
        for (value, code) in pairs {
            sums.count += 1.0;
            sums.values += value;
            sums.codes += code;
            sums.squares += code * code;
            sums.products += value * code;
        }
        sums
    }

    /// Scale and start of the smallest squared error.
    fn line(&self) -> Option<[f32; 2]> {
        let determinant = self.count * self.squares - self.codes * self.codes;
        let scale = self.count * self.products - self.codes * self.values;
        let start = self.squares * self.values - self.codes * self.products;
        (determinant > 0.0).then(|| [scale / determinant, start / determinant])
    }

    /// The scale of the smallest squared error where the start is 0.
    fn ray(&self) -> Option<f32> {
        (self.squares > 0.0).then(|| self.products / self.squares)
    }
}

/// Candidates to each side of the scale that spans the values.
const CANDIDATES: i8 = 9;
