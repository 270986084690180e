//! Codes of 1 to 8 bits, as SDNQ packs them, and what they stand for.
//!
//! As many codes as fill whole bytes stand together. With 1, 2, 4 and 8 bits they follow each other from the low end of a
//! byte. With 7, 6 and 5 bits the first ones are the low bits of a byte each, and the rest is gathered from the high bits;
//! with 3 bits two are in each of three bytes, and two are gathered.

use crate::kernels::minifloat;

/// What a code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeKind {
    /// From 0 on.
    Unsigned,
    /// From the middle on: in packed form the least is stored as 0.
    Signed,
    /// A float with so many bits of exponent and mantissa, all patterns of which are numbers.
    Float { exponent: u8, mantissa: u8 },
}

/// The codes of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Codes {
    pub(super) bits: u8,
    pub(super) kind: CodeKind,
}

impl Codes {
    /// The codes that SDNQ calls `name`, such as `uint4` or `float8_e4m3fn`.
    pub(super) fn named(name: &str) -> Option<Self> {
        let of = |bits: &str, kind| {
            let bits = bits.parse().ok().filter(|bits| (1..=8).contains(bits))?;
            Some(Self { bits, kind })
        };
        if let Some(bits) = name.strip_prefix("uint") {
            return of(bits, CodeKind::Unsigned);
        }
        if let Some(bits) = name.strip_prefix("int") {
            return of(bits, CodeKind::Signed);
        }
        let (bits, form) = name.strip_prefix("float")?.split_once("_e")?;
        let (exponent, mantissa) = form.strip_suffix("fn").unwrap_or(form).split_once('m')?;
        let (exponent, mantissa) = (exponent.parse().ok()?, mantissa.parse().ok()?);
        let codes = of(bits, CodeKind::Float { exponent, mantissa })?;
        (u32::from(exponent) + u32::from(mantissa) + 1 == u32::from(codes.bits)).then_some(codes)
    }

    /// How many codes stand together, and in how many bytes.
    pub(super) fn chunk(self) -> [usize; 2] {
        match self.bits {
            1 => [8, 1],
            2 => [4, 1],
            3 => [8, 3],
            4 => [2, 1],
            5 => [8, 5],
            6 => [4, 3],
            7 => [8, 7],
            _ => [1, 1],
        }
    }

    /// Unpacks the codes that stand together in `bytes`.
    #[inline(always)]
    pub(super) fn unpack(self, bytes: &[u8]) -> [u8; 8] {
        let mut codes = [0; 8];
        match (self.bits, bytes) {
            (1, [byte]) => (0..8).for_each(|n| codes[n] = byte >> n & 1),
            (2, [byte]) => (0..4).for_each(|n| codes[n] = byte >> (2 * n) & 3),
            (3, [a, b, c]) => {
                codes = [
                    a & 7,
                    b & 7,
                    c & 7,
                    a >> 3 & 7,
                    b >> 3 & 7,
                    c >> 3 & 7,
                    a >> 6 | (c >> 4 & 4),
                    b >> 6 | (c >> 5 & 4),
                ];
            }
            (4, [byte]) => codes[..2].copy_from_slice(&[byte & 15, byte >> 4]),
            (5, [a, b, c, d, e]) => {
                codes = [
                    a & 31,
                    b & 31,
                    c & 31,
                    d & 31,
                    e & 31,
                    a >> 5 | (d >> 2 & 24),
                    b >> 5 | (e >> 2 & 24),
                    c >> 5 | (d >> 3 & 16) | (e >> 4 & 8),
                ];
            }
            (6, [a, b, c]) => {
                let last = (a >> 2 & 48) | (b >> 4 & 12) | c >> 6;
                codes[..4].copy_from_slice(&[a & 63, b & 63, c & 63, last]);
            }
            (7, bytes) => {
                for (n, byte) in bytes.iter().enumerate().take(7) {
                    codes[n] = byte & 127;
                    codes[7] |= (byte >> 7) << (6 - n);
                }
            }
            (_, bytes) => codes[0] = bytes[0],
        }
        codes
    }

    /// What every code of a float stands for whose patterns are all numbers.
    pub(super) fn float_table(self) -> [f32; 256] {
        let mut values = [0.0; 256];
        let CodeKind::Float { exponent, mantissa } = self.kind else {
            return values;
        };
        let bias = (1_u32 << exponent.saturating_sub(1)) - 1;
        for (code, value) in (0_u8..=u8::MAX).zip(&mut values) {
            *value = minifloat(code, [exponent.into(), mantissa.into(), bias]);
        }
        values
    }
}
