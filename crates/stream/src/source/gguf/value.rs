//! A metadata value: a number, a boolean, a text or an array.

use std::fmt;

use serde::{Serialize, Serializer};

use super::{GgufArray, GgufText, GgufType};

/// A typed metadata value of a GGUF file. Texts and arrays that were read are views into the file.
#[derive(Clone, Debug, PartialEq)]
pub enum GgufValue {
    /// Unsigned, 8 bits.
    U8(u8),
    /// Signed, 8 bits.
    I8(i8),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Signed, 16 bits.
    I16(i16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Signed, 32 bits.
    I32(i32),
    /// Floating point, 32 bits.
    F32(f32),
    /// True or false.
    Bool(bool),
    /// UTF-8 text.
    Text(GgufText),
    /// Values of one type.
    Array(GgufArray),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Signed, 64 bits.
    I64(i64),
    /// Floating point, 64 bits.
    F64(f64),
}

impl GgufValue {
    /// The value's type.
    #[must_use]
    pub fn value_type(&self) -> GgufType {
        match self {
            Self::U8(_) => GgufType::U8,
            Self::I8(_) => GgufType::I8,
            Self::U16(_) => GgufType::U16,
            Self::I16(_) => GgufType::I16,
            Self::U32(_) => GgufType::U32,
            Self::I32(_) => GgufType::I32,
            Self::F32(_) => GgufType::F32,
            Self::Bool(_) => GgufType::Bool,
            Self::Text(_) => GgufType::Text,
            Self::Array(_) => GgufType::Array,
            Self::U64(_) => GgufType::U64,
            Self::I64(_) => GgufType::I64,
            Self::F64(_) => GgufType::F64,
        }
    }

    /// The value of a whole number of any width that is not negative.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(number) => Some(number.into()),
            Self::U16(number) => Some(number.into()),
            Self::U32(number) => Some(number.into()),
            Self::U64(number) => Some(number),
            Self::I8(number) => number.try_into().ok(),
            Self::I16(number) => number.try_into().ok(),
            Self::I32(number) => number.try_into().ok(),
            Self::I64(number) => number.try_into().ok(),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::Text(_) | Self::Array(_) => None,
        }
    }

    /// The text, where it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// The array, where it is one.
    #[must_use]
    pub fn as_array(&self) -> Option<&GgufArray> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Appends the value as files hold it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(number) => out.push(*number),
            Self::I8(number) => out.extend(number.to_le_bytes()),
            Self::U16(number) => out.extend(number.to_le_bytes()),
            Self::I16(number) => out.extend(number.to_le_bytes()),
            Self::U32(number) => out.extend(number.to_le_bytes()),
            Self::I32(number) => out.extend(number.to_le_bytes()),
            Self::F32(number) => out.extend(number.to_le_bytes()),
            Self::Bool(is_true) => out.push(u8::from(*is_true)),
            Self::Text(text) => text.encode(out),
            Self::Array(array) => array.encode(out),
            Self::U64(number) => out.extend(number.to_le_bytes()),
            Self::I64(number) => out.extend(number.to_le_bytes()),
            Self::F64(number) => out.extend(number.to_le_bytes()),
        }
    }
}

impl From<&str> for GgufValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// A text as it is, numbers and booleans as JSON writes them, an array as JSON.
impl fmt::Display for GgufValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text.as_str()),
            value => f.write_str(&serde_json::to_string(value).map_err(|_| fmt::Error)?),
        }
    }
}

impl Serialize for GgufValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::U8(number) => serializer.serialize_u8(*number),
            Self::I8(number) => serializer.serialize_i8(*number),
            Self::U16(number) => serializer.serialize_u16(*number),
            Self::I16(number) => serializer.serialize_i16(*number),
            Self::U32(number) => serializer.serialize_u32(*number),
            Self::I32(number) => serializer.serialize_i32(*number),
            Self::F32(number) => serializer.serialize_f32(*number),
            Self::Bool(is_true) => serializer.serialize_bool(*is_true),
            Self::Text(text) => serializer.serialize_str(text.as_str()),
            Self::Array(array) => serializer.collect_seq(array.iter()),
            Self::U64(number) => serializer.serialize_u64(*number),
            Self::I64(number) => serializer.serialize_i64(*number),
            Self::F64(number) => serializer.serialize_f64(*number),
        }
    }
}
