//! The metadata of a file: typed values by key, and the short ones as text.

use std::collections::BTreeMap;

use super::{
    GgufError, GgufValue,
    cursor::Cursor,
    header::check_count,
    read::{read_type, read_value},
};
use crate::source::header::shorten;

/// What all keys, all names and all texts may take in memory, each; real files have a thousandth of it.
pub(super) const MAX_TEXT_BYTES: u64 = 4 << 20;

/// Reads `count` keys and their values.
pub(super) fn read_values(
    cursor: &mut Cursor<'_>,
    count: u64,
) -> Result<BTreeMap<String, GgufValue>, GgufError> {
    let mut values = BTreeMap::new();
    let mut key_bytes = 0;
    for index in 0..count {
        let key = cursor.text(format_args!("the metadata key number {index}"))?;
        key_bytes += key.len() as u64;
        check_count(cursor, "bytes of metadata keys", key_bytes, MAX_TEXT_BYTES)?;
        let value_type = read_type(cursor, key)?;
        let value = read_value(cursor, value_type, key, 0)?;
        if values.contains_key(key) {
            return Err(GgufError::DuplicateKey {
                file: cursor.file(),
                key: shorten(key),
            });
        }
        values.insert(key.to_owned(), value);
    }
    Ok(values)
}

/// The values as text; long texts and arrays are left out.
pub(super) fn texts(
    file: &str,
    values: &BTreeMap<String, GgufValue>,
) -> Result<BTreeMap<String, String>, GgufError> {
    let mut texts = BTreeMap::new();
    let mut found = 0;
    for (key, value) in values.iter().filter(|(_, value)| is_short(value)) {
        let text = value.to_string();
        found += text.len() as u64;
        if found > MAX_TEXT_BYTES {
            return Err(GgufError::Count {
                file: file.to_owned(),
                what: "bytes of metadata",
                found,
                limit: MAX_TEXT_BYTES,
            });
        }
        texts.insert(key.clone(), text);
    }
    Ok(texts)
}

/// A value in a message.
pub(super) fn describe(value: &GgufValue) -> String {
    let value_type = value.value_type();
    if is_short(value) {
        shorten(&format!("the {value_type:?} {value}"))
    } else {
        format!("a long {value_type:?}")
    }
}

fn is_short(value: &GgufValue) -> bool {
    match value {
        GgufValue::Text(text) => text.num_bytes() <= MAX_SHOWN_TEXT_BYTES,
        GgufValue::Array(array) => array.num_bytes() <= MAX_SHOWN_ARRAY_BYTES,
        _ => true,
    }
}

/// A description or a licence, not a tokenizer.
const MAX_SHOWN_TEXT_BYTES: usize = 16 << 10;

/// A shape or a list of tags, not a vocabulary.
const MAX_SHOWN_ARRAY_BYTES: usize = 1 << 10;
