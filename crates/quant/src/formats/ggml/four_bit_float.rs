//! Floats of 4 bits: a sign, two bits of exponent, one of mantissa (E2M1 of the OCP Microscaling Formats specification 1.0).

/// Twice the value of every pattern, which is a whole number.
pub(super) static DOUBLED: [f32; 16] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0,
];
