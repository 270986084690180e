//! What decoding has to know of a weight beside its tensors, as a part of a few bytes.

use crate::{Part, Parts};

use super::codes::{CodeKind, Codes};

/// The text that holds SDNQ's settings.
pub(super) const CONFIG: &str = "quantization_config";

/// Decided when the weight was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) codes: Codes,
    /// Bytes that hold one byte of codes: 8 where they are stored as 64-bit numbers.
    pub(super) stride: u8,
    /// The scales are a table for the codes.
    pub(super) is_codebook: bool,
    /// The values are stored `[d_input, d_output]`.
    pub(super) is_transposed: bool,
    /// The weight is a convolution's.
    pub(super) is_conv: bool,
    /// Groups of a row.
    pub(super) num_groups: u32,
    /// Positions of a convolution's kernel, each with scales of its own.
    pub(super) num_positions: u32,
    /// Values that a Hadamard matrix turns together; 0 for none.
    pub(super) hadamard: u32,
}

impl Settings {
    const NAME: &'static str = "settings";
    pub(super) const NUM_BYTES: usize = 18;

    /// As the part that holds them.
    pub(super) fn part(self) -> Part {
        let (kind, exponent, mantissa) = match self.codes.kind {
            CodeKind::Unsigned => (0, 0, 0),
            CodeKind::Signed => (1, 0, 0),
            CodeKind::Float { exponent, mantissa } => (2, exponent, mantissa),
        };
        let flags = [self.is_codebook, self.is_transposed, self.is_conv];
        let flags = flags
            .into_iter()
            .rev()
            .fold(0, |bits, flag| bits << 1 | u8::from(flag));
        let mut bytes = vec![
            self.codes.bits,
            kind,
            exponent,
            mantissa,
            self.stride,
            flags,
        ];
        for number in [self.num_groups, self.num_positions, self.hadamard] {
            bytes.extend(number.to_le_bytes());
        }
        Part {
            name: Self::NAME,
            tag: String::new(),
            shape: Vec::new(),
            bytes: bytes.into(),
        }
    }

    /// Those of a weight; `None` where there is no such part, or it is damaged.
    pub(super) fn of(parts: &Parts) -> Option<Self> {
        let bytes: &[u8; Self::NUM_BYTES] = parts.bytes(Self::NAME).try_into().ok()?;
        let [bits, kind, exponent, mantissa, stride, flags, numbers @ ..] = bytes;
        let kind = match kind {
            0 => CodeKind::Unsigned,
            1 => CodeKind::Signed,
            _ => CodeKind::Float {
                exponent: *exponent,
                mantissa: *mantissa,
            },
        };
        let (numbers, _) = numbers.as_chunks::<4>();
        let [num_groups, num_positions, hadamard] =
            [0, 1, 2].map(|n| u32::from_le_bytes(numbers[n]));
        Some(Self {
            codes: Codes { bits: *bits, kind },
            stride: *stride,
            is_codebook: flags & 1 == 1,
            is_transposed: flags >> 1 & 1 == 1,
            is_conv: flags >> 2 & 1 == 1,
            num_groups,
            num_positions,
            hadamard,
        })
    }
}
