//! Floats of at most 8 bits: a sign, some bits of exponent, the rest mantissa.
//!
//! `value = ±2^(e − bias) · (1 + m / 2^M)`, and `±2^(1 − bias) · m / 2^M` where `e` is 0. Which patterns are infinity or
//! NaN differs from type to type.

use super::widen_f16;

/// `E4M3` with bias 7, without infinities: all ones but the sign is NaN (OCP 8-bit floating point specification 1.0).
pub static F8_E4M3: [f32; 256] = table([4, 3, 7], 0x7f, 0x7f);

/// The number whose bits are `bits`, as [`F8_E4M3`] has it; branch-free, so that loops over it vectorise.
///
/// Sign, exponent and mantissa are shifted into place and scaled by 2^(127 - 7), which is exact also for subnormals.
#[must_use]
#[inline(always)]
pub fn widen_f8_e4m3(bits: u8) -> f32 {
    let shifted = (i32::from(bits.cast_signed()) << 20).cast_unsigned() & 0x87f0_0000;
    let value = f32::from_bits(shifted) * f32::from_bits((127 + 120) << 23);
    // What would be the next larger number stands for NaN.
    if value.abs() > F8_E4M3_MAX {
        f32::NAN
    } else {
        value
    }
}

/// The number whose bits are `bits`, as [`F8_E5M2`] has it: those are the upper half of an f16's.
#[must_use]
#[inline(always)]
pub fn widen_f8_e5m2(bits: u8) -> f32 {
    widen_f16(u16::from_le_bytes([0, bits]))
}

/// The largest number of [`F8_E4M3`].
pub const F8_E4M3_MAX: f32 = 448.0;

/// The `E4M3` nearest to `value`, of two the one with an even mantissa; the largest one where it is larger.
#[must_use]
pub fn to_f8_e4m3(value: f32) -> u8 {
    const KEPT: u32 = 3;
    /// Subnormal numbers of the type are whole multiples of this; the eighth is the first normal one, with bits 8.
    const UNIT: f32 = 1.0 / 512.0;
    if value.is_nan() {
        return 0x7f;
    }
    let magnitude = value.abs().min(F8_E4M3_MAX);
    let bits = if magnitude < 8.0 * UNIT {
        whole(magnitude / UNIT)
    } else {
        let dropped = f32::MANTISSA_DIGITS - 1 - KEPT;
        let bits = magnitude.to_bits();
        let half = (1 << (dropped - 1)) - 1 + (bits >> dropped & 1);
        // A carry of the mantissa goes into the exponent.
        ((bits + half) >> dropped) - ((127 - 7) << KEPT)
    };
    let [low, ..] = bits.to_le_bytes();
    low | u8::from(value.is_sign_negative()) << 7
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the argument is between 0 and 8"
)]
fn whole(value: f32) -> u32 {
    value.round_ties_even() as u32
}

/// `E5M2` with bias 15, with infinities and NaN as in IEEE 754 (OCP 8-bit floating point specification 1.0).
pub static F8_E5M2: [f32; 256] = table([5, 2, 15], 0x7c, 0x7d);

/// The value of the lowest `1 + exponent_bits + mantissa_bits` of `bits`, where every pattern is a finite number.
///
/// # Panics
/// If there are more than 8 bits in all.
#[must_use]
pub const fn minifloat(bits: u8, [exponent_bits, mantissa_bits, bias]: [u32; 3]) -> f32 {
    assert!(exponent_bits + mantissa_bits < 8, "a minifloat has 8 bits");
    let bits = bits as u32;
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let is_negative = (bits >> (exponent_bits + mantissa_bits)) & 1 == 1;
    let significand = if exponent == 0 {
        mantissa
    } else {
        mantissa + (1 << mantissa_bits)
    };
    let exponent = if exponent == 0 { 1 } else { exponent };
    // 2^(exponent − bias − mantissa_bits), exact: the exponent of an f32 is far from its ends.
    let power = f32::from_bits((127 + exponent - bias - mantissa_bits) << 23);
    let magnitude = significand as f32 * power;
    if is_negative { -magnitude } else { magnitude }
}

/// Every pattern of 8 bits. Without their sign, patterns from `first_infinity` on are infinite, from `first_nan` on NaN.
const fn table(form: [u32; 3], first_infinity: u8, first_nan: u8) -> [f32; 256] {
    let mut values = [0.0; 256];
    let mut bits = 0_u8;
    loop {
        let value = minifloat(bits, form);
        let magnitude = bits & 0x7f;
        values[bits as usize] = if magnitude >= first_nan {
            f32::NAN
        } else if magnitude >= first_infinity {
            value * f32::INFINITY
        } else {
            value
        };
        if bits == u8::MAX {
            return values;
        }
        bits += 1;
    }
}
