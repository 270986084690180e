//! Numbers of any container type, one at a time: what scales, zero points and codebooks are kept in.

use super::{minifloat, widen_f16};

/// Little-endian numbers of one type.
#[derive(Clone, Copy, Debug)]
pub struct Scalars<'a> {
    kind: Kind,
    bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    F64,
    F32,
    F16,
    Bf16,
    F8E4m3,
    F8E5m2,
    I8,
    U8,
}

impl<'a> Scalars<'a> {
    /// The numbers in `bytes`, of the type a container calls `tag`; `None` where that is none of these.
    #[must_use]
    pub fn new(tag: &str, bytes: &'a [u8]) -> Option<Self> {
        let kind = match tag {
            "F64" => Kind::F64,
            "F32" => Kind::F32,
            "F16" => Kind::F16,
            "BF16" => Kind::Bf16,
            "F8_E4M3" => Kind::F8E4m3,
            "F8_E5M2" => Kind::F8E5m2,
            "I8" => Kind::I8,
            "U8" => Kind::U8,
            _ => return None,
        };
        Some(Self { kind, bytes })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.kind.size()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number `index`, in f32.
    ///
    /// # Panics
    /// If there is no such number.
    #[must_use]
    #[inline(always)]
    pub fn get(&self, index: usize) -> f32 {
        match self.kind {
            Kind::F64 => narrowed(f64::from_le_bytes(self.element(index))),
            Kind::F32 => f32::from_le_bytes(self.element(index)),
            Kind::F16 => widen_f16(u16::from_le_bytes(self.element(index))),
            Kind::Bf16 => f32::from_bits(u32::from(u16::from_le_bytes(self.element(index))) << 16),
            Kind::F8E4m3 => minifloat::F8_E4M3[usize::from(self.bytes[index])],
            Kind::F8E5m2 => minifloat::F8_E5M2[usize::from(self.bytes[index])],
            Kind::I8 => f32::from(self.bytes[index].cast_signed()),
            Kind::U8 => f32::from(self.bytes[index]),
        }
    }

    /// The bits of number `index`, where numbers are bytes.
    ///
    /// # Panics
    /// If there is no such number.
    #[must_use]
    #[inline(always)]
    pub fn byte(&self, index: usize) -> u8 {
        self.bytes[index]
    }

    /// All of them, in f32.
    pub fn iter(&self) -> impl Iterator<Item = f32> + use<'a> {
        let numbers = *self;
        (0..numbers.len()).map(move |index| numbers.get(index))
    }

    #[inline(always)]
    fn element<const N: usize>(&self, index: usize) -> [u8; N] {
        self.bytes.as_chunks().0[index]
    }
}

impl Kind {
    fn size(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::F8E4m3 | Self::F8E5m2 | Self::I8 | Self::U8 => 1,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to the nearest f32 is the meaning"
)]
fn narrowed(value: f64) -> f32 {
    value as f32
}
