//! Reading and checking one metadata value.
//!
//! ```text
//! number, bool: little-endian | text: u64 length, UTF-8 | array: u32 type, u64 length, elements
//! ```
//!
//! A length is compared with what the file still holds before anything is done by it.

use super::{GgufArray, GgufError, GgufText, GgufType, GgufValue, cursor::Cursor};
use crate::source::header::shorten;

/// Reads the value of `key`, which stands in `depth` arrays.
pub(super) fn read_value(
    cursor: &mut Cursor<'_>,
    value_type: GgufType,
    key: &str,
    depth: usize,
) -> Result<GgufValue, GgufError> {
    let what = format_args!("the value of `{key}`");
    Ok(match value_type {
        GgufType::U8 => GgufValue::U8(u8::from_le_bytes(cursor.array(what)?)),
        GgufType::I8 => GgufValue::I8(i8::from_le_bytes(cursor.array(what)?)),
        GgufType::U16 => GgufValue::U16(u16::from_le_bytes(cursor.array(what)?)),
        GgufType::I16 => GgufValue::I16(i16::from_le_bytes(cursor.array(what)?)),
        GgufType::U32 => GgufValue::U32(cursor.u32(what)?),
        GgufType::I32 => GgufValue::I32(i32::from_le_bytes(cursor.array(what)?)),
        GgufType::F32 => GgufValue::F32(f32::from_le_bytes(cursor.array(what)?)),
        GgufType::Bool => GgufValue::Bool(read_bool(cursor, key)?),
        GgufType::Text => GgufValue::Text(read_text(cursor, key)?),
        GgufType::Array => GgufValue::Array(read_array(cursor, key, depth + 1)?),
        GgufType::U64 => GgufValue::U64(cursor.u64(what)?),
        GgufType::I64 => GgufValue::I64(i64::from_le_bytes(cursor.array(what)?)),
        GgufType::F64 => GgufValue::F64(f64::from_le_bytes(cursor.array(what)?)),
    })
}

/// Reads the type of the value of `key`, or of the elements of its array.
pub(super) fn read_type(cursor: &mut Cursor<'_>, key: &str) -> Result<GgufType, GgufError> {
    let found = cursor.u32(format_args!("the type of `{key}`"))?;
    GgufType::from_id(found).ok_or_else(|| GgufError::ValueType {
        file: cursor.file(),
        key: shorten(key),
        found,
    })
}

fn read_bool(cursor: &mut Cursor<'_>, key: &str) -> Result<bool, GgufError> {
    match cursor.array(format_args!("the value of `{key}`"))? {
        [0] => Ok(false),
        [1] => Ok(true),
        [found] => Err(GgufError::Bool {
            file: cursor.file(),
            key: shorten(key),
            found,
        }),
    }
}

fn read_text(cursor: &mut Cursor<'_>, key: &str) -> Result<GgufText, GgufError> {
    let text = cursor.text(format_args!("the text of `{key}`"))?;
    let view = cursor.since(cursor.position() - text.len());
    Ok(GgufText::of_checked(view))
}

fn read_array(cursor: &mut Cursor<'_>, key: &str, depth: usize) -> Result<GgufArray, GgufError> {
    if depth > MAX_DEPTH {
        return Err(GgufError::ArrayDepth {
            file: cursor.file(),
            key: shorten(key),
            limit: MAX_DEPTH,
        });
    }
    let what = format_args!("the array of `{key}`");
    let element_type = read_type(cursor, key)?;
    let len = cursor.u64(what)?;
    let start = cursor.position();
    // Passes numbers at once; what is shorter than it could be is refused here, too.
    cursor.skip(len.saturating_mul(element_type.min_bytes()), what)?;
    if needs_reading(element_type) {
        cursor.go_back_to(start);
        for _ in 0..len {
            read_value(cursor, element_type, key, depth)?;
        }
    }
    let len = usize::try_from(len).expect("the elements are in memory");
    Ok(GgufArray::of_checked(
        element_type,
        len,
        cursor.since(start),
    ))
}

/// Whether a value of the type can be wrong, or its length is in it.
fn needs_reading(element_type: GgufType) -> bool {
    element_type == GgufType::Bool || element_type.fixed_bytes().is_none()
}

/// Arrays of arrays are rare, and deeper ones unheard of.
const MAX_DEPTH: usize = 4;
