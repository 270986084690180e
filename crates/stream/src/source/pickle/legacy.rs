//! The form of `torch.save` before `PyTorch` 1.6: pickles one after another, then the storages.
//!
//! ```text
//! magic number | protocol version 1001 | {"little_endian": True, …} | the object | [key, …]
//! for each key: i64 little-endian: number of elements | elements
//! ```
//! Source: `PyTorch`, `torch/serialization.py`, `_legacy_save`.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    PickleError,
    cursor::Cursor,
    machine::unpickle,
    tensors::Storages,
    values::{Done, Pickled, Value},
};

/// `0x1950_a86a_20f9_469c_fc6c` and the end of its pickle; what comes before depends on the protocol.
const MAGIC: [u8; 13] = *b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

const PROTOCOL: i64 = 1001;

/// Whether the first pickle is the magic number.
pub(super) fn is_legacy(file: &[u8]) -> bool {
    let magic = match file {
        [0x80, 2..=3, rest @ ..] => rest,
        [0x80, 4..=5, 0x95, _, 0, 0, 0, 0, 0, 0, 0, rest @ ..] => rest,
        _ => return false,
    };
    magic.starts_with(&MAGIC)
}

/// Reads all pickles and finds the storages; the cursor stands at the file's first byte.
pub(super) fn read<'a>(
    cursor: &mut Cursor<'a>,
    whole: &Bytes,
) -> Result<(Pickled<'a>, Storages), PickleError> {
    // The magic number.
    unpickle(cursor)?;
    check_protocol(cursor)?;
    check_byte_order(cursor)?;
    let object = unpickle(cursor)?;
    let storages = storages(cursor, &object, whole)?;
    Ok((object, storages))
}

fn check_protocol(cursor: &mut Cursor<'_>) -> Done {
    let protocol = unpickle(cursor)?;
    match protocol.values.at(protocol.root) {
        Value::Int(PROTOCOL) => Ok(()),
        _ => Err(cursor.malformed("the protocol version 1001")),
    }
}

fn check_byte_order(cursor: &mut Cursor<'_>) -> Done {
    let system = unpickle(cursor)?;
    let order = system.values.entry(system.root, "little_endian");
    match order.map(|order| system.values.at(order)) {
        Some(Value::Bool(false)) => Err(PickleError::BigEndian {
            file: cursor.file().to_owned(),
        }),
        _ => Ok(()),
    }
}

fn storages(
    cursor: &mut Cursor<'_>,
    object: &Pickled<'_>,
    whole: &Bytes,
) -> Result<Storages, PickleError> {
    let element_bytes: BTreeMap<_, _> = object
        .storages
        .iter()
        .map(|storage| {
            (
                storage.key,
                storage.element.map_or(1, |element| element.num_bytes),
            )
        })
        .collect();
    let keys = unpickle(cursor)?;
    let listed = keys.values.sequence(keys.root);
    let listed = listed.ok_or_else(|| cursor.malformed("the list of storages"))?;
    let mut storages = Storages::new();
    for key in listed {
        let key = keys
            .values
            .text(*key)
            .filter(|key| !storages.contains_key(*key));
        let known = key.and_then(|key| Some((key, *element_bytes.get(key)?)));
        let expected = "each storage of the object once in the list of storages";
        let (key, element_bytes) = known.ok_or_else(|| cursor.malformed(expected))?;
        let num_elements = u64::from_le_bytes(cursor.array()?);
        let bytes = cursor.take(num_elements.saturating_mul(element_bytes as u64))?;
        storages.insert(key.to_owned(), whole.slice_ref(bytes));
    }
    Ok(storages)
}
