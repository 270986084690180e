//! The types of metadata values, by the numbers that the format gives them.

/// Type of a metadata value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufType {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Floating point, 32 bits.
    F32,
    /// A byte that is 0 or 1.
    Bool,
    /// UTF-8 text.
    Text,
    /// Values of one type.
    Array,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// Floating point, 64 bits.
    F64,
}

impl GgufType {
    /// The type of this number, if there is one.
    #[must_use]
    pub fn from_id(id: u32) -> Option<Self> {
        let index = usize::try_from(id).ok()?;
        ORDER.get(index).copied()
    }

    /// The number that files hold.
    #[must_use]
    pub fn id(self) -> u32 {
        // Declared in the order of the format's numbers.
        self as u32
    }

    /// Bytes of every value of the type; `None` where that depends on the value.
    pub(super) fn fixed_bytes(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Text | Self::Array => None,
        }
    }

    /// Bytes of the shortest value of the type.
    pub(super) fn min_bytes(self) -> u64 {
        match self {
            Self::Text => size_of::<u64>() as u64,
            Self::Array => (size_of::<u32>() + size_of::<u64>()) as u64,
            _ => self.fixed_bytes().unwrap_or(0),
        }
    }
}

const ORDER: [GgufType; 13] = [
    GgufType::U8,
    GgufType::I8,
    GgufType::U16,
    GgufType::I16,
    GgufType::U32,
    GgufType::I32,
    GgufType::F32,
    GgufType::Bool,
    GgufType::Text,
    GgufType::Array,
    GgufType::U64,
    GgufType::I64,
    GgufType::F64,
];
