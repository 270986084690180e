//! Floats of 4 bits: a sign, two bits of exponent, one of mantissa (E2M1 of the OCP Microscaling Formats specification 1.0).

/// Twice the value of every pattern, which is a whole number.
pub(super) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
