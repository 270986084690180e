//! The sixteen unevenly spaced values behind codes of 4 bits, and how values are laid on them.

/// Their values, in steps that follow a bell curve (`kvalues_iq4nl` in ggml-common.h).
pub(super) static VALUES: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// The code whose value times `scale` is nearest to `value`.
pub(super) fn nearest(value: f32, scale: f32) -> u8 {
    let inverse = if scale == 0.0 { 0.0 } else { scale.recip() };
    let target = value * inverse;
    // The table rises, so the codes are as many as midpoints lie below.
    let midpoints = VALUES
        .windows(2)
        .map(|pair| f32::midpoint(pair[0], pair[1]));
    let below = midpoints.filter(|midpoint| *midpoint < target).count();
    u8::try_from(below).expect("there are sixteen codes")
}

/// The scale of a small squared error: among those a little off the one that lays the largest value on an end of the
/// table, each solved again for its codes.
pub(super) fn scale(values: &[f32]) -> f32 {
    let largest = values.iter().fold(0.0_f32, |largest, value| {
        match value.abs() > largest.abs() {
            true => *value,
            false => largest,
        }
    });
    if largest == 0.0 {
        return 0.0;
    }
    let mut best = (0.0, largest / VALUES[0]);
    for step in -CANDIDATES..=CANDIDATES {
        let candidate = largest / (VALUES[0] + f32::from(step));
        let (mut products, mut squares) = (0.0, 0.0);
        for value in values {
            let code = VALUES[usize::from(nearest(*value, candidate))];
            products += value * code;
            squares += code * code;
        }
        // What the best scale for these codes takes off the squared error.
        let gain = products * products / squares;
        if gain > best.0 {
            best = (gain, products / squares);
        }
    }
    best.1
}

/// Candidates to each side, in units of the table.
const CANDIDATES: i8 = 14;
