//! The types sdnq packs values into: whole numbers and floats of at most 8 bits.
//!
//! `int4`, `uint4`; `float6_e3m2fn` has a sign, 3 bits of exponent and 2 of mantissa, all patterns finite, and
//! `float6_e3m3fnu` is the same without sign. A packed signed number is kept as `number − smallest`, an `int8` as it is.
//! The exponent's bias is `2^(E − 1) − 1`. `float8_e4m3fn` and `float8_e5m2` are torch's, with NaN and infinities
//! (`dtype_dict` in sdnq's `common.py`, version 0.2.8).

use crate::kernels::minifloat::{F8_E4M3, F8_E5M2};

/// What a code of some bits stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Int {
        bits: u32,
    },
    Uint {
        bits: u32,
    },
    Float {
        is_signed: bool,
        exponent_bits: u32,
        mantissa_bits: u32,
    },
    F8E4m3,
    F8E5m2,
}

/// How codes become numbers.
#[expect(
    clippy::large_enum_variant,
    reason = "made once per call, and read in loops that an indirection would slow"
)]
pub(super) enum Decoder {
    /// `(code ^ flipped) + smallest`.
    Whole { flipped: u8, smallest: f32 },
    /// The number of every code.
    Table([f32; 256]),
}

impl Number {
    /// The type sdnq calls `name`; `None` where it has more than 8 bits, or is none.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let name = full_name(name);
        if let Some(bits) = name.strip_prefix("uint") {
            return Self::whole(bits, false);
        }
        if let Some(bits) = name.strip_prefix("int") {
            return Self::whole(bits, true);
        }
        match name {
            "float8_e4m3fn" => return Some(Self::F8E4m3),
            "float8_e5m2" => return Some(Self::F8E5m2),
            _ => {}
        }
        let (bits, form) = name.strip_prefix("float")?.split_once("_e")?;
        let form = form.strip_suffix("_sdnq").unwrap_or(form);
        let (form, is_signed) = match form.strip_suffix("fnu") {
            Some(form) => (form, false),
            None => (form.strip_suffix("fn")?, true),
        };
        let (exponent_bits, mantissa_bits) = form.split_once('m')?;
        let (exponent_bits, mantissa_bits) = (digit(exponent_bits)?, digit(mantissa_bits)?);
        let number = Self::Float {
            is_signed,
            exponent_bits,
            mantissa_bits,
        };
        let is_known = (1..=5).contains(&exponent_bits) && Some(number.bits()) == digit(bits);
        (is_known && number.bits() <= 8).then_some(number)
    }

    /// Bits of a code.
    pub(super) fn bits(self) -> u32 {
        match self {
            Self::Int { bits } | Self::Uint { bits } => bits,
            Self::Float {
                is_signed,
                exponent_bits,
                mantissa_bits,
            } => u32::from(is_signed) + exponent_bits + mantissa_bits,
            Self::F8E4m3 | Self::F8E5m2 => 8,
        }
    }

    /// Whether values have a zero point.
    pub(super) fn is_unsigned(self) -> bool {
        match self {
            Self::Uint { .. } => true,
            Self::Float { is_signed, .. } => !is_signed,
            Self::Int { .. } | Self::F8E4m3 | Self::F8E5m2 => false,
        }
    }

    /// The container's words for the tensor of codes.
    pub(super) fn tags(self) -> &'static [&'static str] {
        match self {
            Self::Int { bits: 8 } => &["I8"],
            Self::F8E4m3 => &["F8_E4M3"],
            Self::F8E5m2 => &["F8_E5M2"],
            // Bits are summed up in 64-bit numbers before they are saved, and stay so.
            _ if self.bits() == 1 => &["U8", "I64"],
            _ => &["U8"],
        }
    }

    pub(super) fn decoder(self) -> Decoder {
        match self {
            Self::Uint { .. } => Decoder::Whole {
                flipped: 0,
                smallest: 0.0,
            },
            Self::Int { bits: 8 } => Decoder::Whole {
                flipped: 0x80,
                smallest: -128.0,
            },
            Self::Int { bits } => Decoder::Whole {
                flipped: 0,
                smallest: -f32::from(1_u8 << (bits - 1)),
            },
            Self::F8E4m3 => Decoder::Table(F8_E4M3),
            Self::F8E5m2 => Decoder::Table(F8_E5M2),
            Self::Float {
                is_signed,
                exponent_bits,
                mantissa_bits,
            } => Decoder::Table(float_table(is_signed, exponent_bits, mantissa_bits)),
        }
    }

    fn whole(bits: &str, is_signed: bool) -> Option<Self> {
        match (digit(bits)?, is_signed) {
            (bits @ 2..=8, true) => Some(Self::Int { bits }),
            (bits @ 1..=8, false) => Some(Self::Uint { bits }),
            _ => None,
        }
    }
}

/// sdnq's short names in full: `fp6` has a sign, `ufp6` has none.
fn full_name(name: &str) -> &str {
    if ["int1", "bool"].contains(&name) {
        return "uint1";
    }
    let (bits, is_signed) = match (name.strip_prefix("fp"), name.strip_prefix("ufp")) {
        (Some(bits), _) => (bits, true),
        (_, Some(bits)) => (bits, false),
        _ => return name,
    };
    match (bits, is_signed) {
        ("8", true) => "float8_e4m3fn",
        ("7", true) => "float7_e3m3fn",
        ("6", true) => "float6_e3m2fn",
        ("5", true) => "float5_e2m2fn",
        ("4", true) => "float4_e2m1fn",
        ("3", true) => "float3_e1m1fn",
        ("2", true) => "float2_e1m0fn",
        ("8", false) => "float8_e4m4fnu",
        ("7", false) => "float7_e3m4fnu",
        ("6", false) => "float6_e3m3fnu",
        ("5", false) => "float5_e2m3fnu",
        ("4", false) => "float4_e2m2fnu",
        ("3", false) => "float3_e1m2fnu",
        ("2", false) => "float2_e1m1fnu",
        ("1", _) => "float1_e1m0fnu",
        _ => name,
    }
}

fn digit(text: &str) -> Option<u32> {
    match text.as_bytes() {
        [digit @ b'0'..=b'9'] => Some(u32::from(digit - b'0')),
        _ => None,
    }
}

/// Every pattern is finite: `2^(e − bias) · (1 + m / 2^M)`, and `2^(1 − bias) · m / 2^M` where `e` is 0; zero has no sign.
fn float_table(is_signed: bool, exponent_bits: u32, mantissa_bits: u32) -> [f32; 256] {
    let bias = (1 << (exponent_bits - 1)) - 1;
    let mut table = [0.0; 256];
    for (code, value) in (0..=u8::MAX).zip(&mut table) {
        let (exponent, mantissa) = (
            code >> mantissa_bits & ((1 << exponent_bits) - 1),
            code & ((1 << mantissa_bits) - 1),
        );
        let significand =
            f32::from(u16::from(mantissa) + (u16::from(exponent > 0) << mantissa_bits));
        let power = 127 + u32::from(exponent.max(1)) - bias - mantissa_bits;
        let magnitude = significand * f32::from_bits(power << 23);
        let is_negative =
            is_signed && significand > 0.0 && code >> (exponent_bits + mantissa_bits) & 1 == 1;
        *value = if is_negative { -magnitude } else { magnitude };
    }
    table
}
