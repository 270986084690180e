//! Numbers in the bytes of a weight, on a device.

use cubecl::prelude::*;

/// The byte `at`.
#[cube]
pub(crate) fn byte_at(words: &[u32], at: usize) -> u32 {
    (words[at / 4] >> (8 * (at as u32 % 4))) & 255
}

/// The 16 bits from byte `at` on, which is even.
#[cube]
pub(crate) fn short_at(words: &[u32], at: usize) -> u32 {
    (words[at / 4] >> (8 * (at as u32 % 4))) & 0xffff
}

/// The 32 bits from byte `at` on, which is even.
#[cube]
pub(crate) fn word_at(words: &[u32], at: usize) -> u32 {
    short_at(words, at) | (short_at(words, at + 2) << 16)
}

/// Number `index` of a table of 16 bits each that begins at word `start`.
#[cube]
pub(crate) fn entry_at(words: &[u32], start: usize, index: u32) -> u32 {
    short_at(words, 4 * start + 2 * index as usize)
}

/// The four bits of byte `at` from bit `shift` on.
#[cube]
pub(crate) fn nibble_at(words: &[u32], at: usize, shift: u32) -> u32 {
    (byte_at(words, at) >> shift) & 15
}

/// The byte `at` as a signed number.
#[cube]
pub(crate) fn signed_at(words: &[u32], at: usize) -> f32 {
    f32::cast_from(byte_at(words, at) ^ 128) - 128.0
}

/// The f32 of the same value as the binary16 number at byte `at`, which is even.
#[cube]
pub(crate) fn f16_at(words: &[u32], at: usize) -> f32 {
    f16_value(short_at(words, at))
}

/// The f32 of the same value as the binary16 number `bits`.
#[cube]
pub(crate) fn f16_value(bits: u32) -> f32 {
    let sign = (bits & 0x8000) << 16;
    let exponent = (bits >> 10) & 31;
    let mantissa = bits & 1023;
    let normal = ((exponent + 112) << 23) | (mantissa << 13);
    let special = 0x7f80_0000u32 | (mantissa << 13);
    let subnormal = u32::reinterpret(f32::cast_from(mantissa) * 5.960_464_5e-8);
    let finite = select(exponent == 0, subnormal, normal);
    f32::reinterpret(sign | select(exponent == 31, special, finite))
}

/// The value of the `E4M3` number `bits`, as [`widen_f8_e4m3`](crate::kernels::minifloat::widen_f8_e4m3) has it.
#[cube]
pub(crate) fn widen_f8_e4m3(bits: u32) -> f32 {
    let sign = (bits & 128) << 24;
    let exponent = (bits >> 3) & 15;
    let mantissa = bits & 7;
    let normal = ((exponent + 120) << 23) | (mantissa << 20);
    let subnormal = u32::reinterpret(f32::cast_from(mantissa) * 0.001_953_125);
    let finite = select(exponent == 0, subnormal, normal);
    let is_nan = (bits & 127) == 127;
    f32::reinterpret(sign | select(is_nan, 0x7fc0_0000u32, finite))
}

/// Twice the value of the `E2M1` number in the lowest four of `bits`.
#[cube]
pub(crate) fn widen_f4_doubled(bits: u32) -> f32 {
    let exponent = (bits >> 1) & 3;
    let mantissa = bits & 1;
    let normal = (2 + mantissa) << select(exponent == 0, 0u32, exponent - 1);
    let magnitude = f32::cast_from(select(exponent == 0, mantissa, normal));
    with_sign(magnitude, bits >> 3)
}

/// `magnitude`, negative where the lowest bit of `sign` is set.
#[cube]
pub(crate) fn with_sign(magnitude: f32, sign: u32) -> f32 {
    f32::reinterpret(u32::reinterpret(magnitude) ^ (sign << 31))
}

/// The f32 nearest to `significand · 2^(exponent - 31)`, of two the one with an even mantissa. The highest bit of the
/// significand is set, and its lowest where anything was cut off below.
#[cube]
pub(crate) fn rounded(sign: u32, significand: u32, exponent: i32) -> f32 {
    // Subnormal numbers have fewer bits.
    let missing = 25 - u32::cast_from(clamp(exponent + 151, 0, 25));
    let num_dropped = clamp_max(missing, 23u32) + 8;
    let kept = significand >> num_dropped;
    let dropped = significand << (32 - num_dropped);
    let is_up = dropped > 0x8000_0000 || (dropped == 0x8000_0000 && (kept & 1) == 1);
    let kept = kept + select(is_up, 1u32, 0u32);
    let smallest = select(missing == 24 && significand > 0x8000_0000, 1u32, 0u32);
    let kept = select(missing > 23, smallest, kept);
    // The highest bit, or a carry of the mantissa, goes into the exponent.
    let biased = u32::cast_from(clamp(exponent + 126, 0, 254));
    let bits = (biased << 23) + kept;
    f32::reinterpret(sign | select(exponent > 127, 0x7f80_0000u32, bits))
}

/// The f32 nearest to the magnitude `high · 2^32 + low`.
#[cube]
pub(crate) fn rounded_whole(sign: u32, high: u32, low: u32) -> f32 {
    let zeros = select(high == 0, 32 + low.leading_zeros(), high.leading_zeros());
    let shift = zeros % 32;
    let upper = select(high == 0, low, high);
    let lower = select(high == 0, 0u32, low);
    // A shift by 32 would be none.
    let carried = (lower >> 1) >> (31 - shift);
    let sticky = select((lower << shift) == 0, 0u32, 1u32);
    let significand = (upper << shift) | carried | sticky;
    let value = rounded(sign, significand, 63 - i32::cast_from(zeros));
    select((high | low) == 0, 0.0, value)
}

/// Number `index` of those that begin at word `start`, of the type `kind`: see [`kind_of`](super::kind_of).
#[cube]
pub(crate) fn number_at(words: &[u32], start: usize, index: usize, kind: u32) -> f32 {
    let mut number = f32::cast_from(byte_at(words, 4 * start + index));
    if kind == 0 {
        number = f32::reinterpret(words[start + index]);
    } else if kind == 1 {
        number = f16_at(words, 4 * start + 2 * index);
    } else if kind == 2 {
        number = f32::reinterpret(short_at(words, 4 * start + 2 * index) << 16);
    } else if kind == 3 {
        number = f64_at(words, start + 2 * index);
    } else if kind == 4 {
        number = widen_f8_e4m3(byte_at(words, 4 * start + index));
    } else if kind == 5 {
        number = f16_value(byte_at(words, 4 * start + index) << 8);
    } else if kind == 6 {
        number = signed_at(words, 4 * start + index);
    }
    number
}

/// The f32 nearest to the binary64 number whose lower half is word `at`.
#[cube]
pub(crate) fn f64_at(words: &[u32], at: usize) -> f32 {
    let low = words[at];
    let high = words[at + 1];
    let sign = high & 0x8000_0000;
    let exponent = (high >> 20) & 2047;
    let mantissa = high & 0x000f_ffff;
    let sticky = select((low & 0x001f_ffff) == 0, 0u32, 1u32);
    let significand = 0x8000_0000u32 | (mantissa << 11) | (low >> 21) | sticky;
    let finite = rounded(sign, significand, i32::cast_from(exponent) - 1023);
    let is_nan = (mantissa | low) != 0;
    let special = f32::reinterpret(sign | select(is_nan, 0x7fc0_0000u32, 0x7f80_0000u32));
    let is_special = exponent == 2047;
    let value = select(is_special, special, finite);
    select(exponent == 0, f32::reinterpret(sign), value)
}
