//! The sixteen unevenly spaced values behind codes of 4 bits, and how values are laid on them.

/// Their values, in steps that follow a bell curve (`kvalues_iq4nl` in ggml-common.h).
pub(super) const TABLE: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// The same plus 128, for devices.
#[cfg(feature = "cube")]
pub(super) const DEVICE_TABLE: [u16; 16] = {
    let mut table = [0; 16];
    let mut index = 0;
    while index < 16 {
        table[index] = (TABLE[index] as i16 + 128).cast_unsigned();
        index += 1;
    }
    table
};

/// The code whose value times `scale` is nearest to `value`.
pub(super) fn nearest(value: f32, scale: f32) -> u8 {
    let inverse = if scale == 0.0 { 0.0 } else { scale.recip() };
    let target = value * inverse;
    // The table rises, so the codes are as many as midpoints lie below.
    let midpoints = TABLE
        .windows(2)
        .map(|pair| f32::midpoint(pair[0].into(), pair[1].into()));
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
    let mut best = (0.0, largest / LEAST);
    for step in -CANDIDATES..=CANDIDATES {
        let candidate = largest / (LEAST + f32::from(step));
        let (mut products, mut squares) = (0.0, 0.0);
        for value in values {
            let code = f32::from(TABLE[usize::from(nearest(*value, candidate))]);
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

/// The end of the table that is furthest from 0.
const LEAST: f32 = -127.0;
/// Candidates to each side, in units of the table.
const CANDIDATES: i8 = 14;
