//! Where tensors lie: aligned, inside the file, and none on the bytes of another.

use std::{collections::BTreeMap, ops::Range};

use super::{GgufError, tensor_list::ListedTensor};
use crate::{StreamError, source::header::shorten};

/// A tensor whose bytes are in the file.
#[derive(Debug)]
pub(super) struct PlacedTensor {
    pub(super) listed: ListedTensor,
    /// In bytes of the data.
    pub(super) range: Range<usize>,
}

/// Checks the place of every tensor in `data_bytes`.
///
/// Bytes between tensors are allowed, for padding is. That ranges inside the file do not overlap bounds the sum of
/// their sizes as well.
pub(super) fn place(
    file: &str,
    tensors: BTreeMap<String, ListedTensor>,
    data_bytes: u64,
    alignment: u64,
) -> Result<BTreeMap<String, PlacedTensor>, StreamError> {
    let placed = tensors.into_iter().map(|(name, listed)| {
        check_alignment(file, &name, listed.offset, alignment)?;
        let range = range(file, &name, &listed, data_bytes)?;
        Ok((name, PlacedTensor { listed, range }))
    });
    let placed = placed.collect::<Result<BTreeMap<_, _>, StreamError>>()?;
    check_overlap(file, &placed)?;
    Ok(placed)
}

fn check_alignment(file: &str, name: &str, offset: u64, alignment: u64) -> Result<(), GgufError> {
    if offset.is_multiple_of(alignment) {
        return Ok(());
    }
    Err(GgufError::Unaligned {
        file: file.to_owned(),
        tensor: shorten(name),
        offset,
        alignment,
    })
}

fn range(
    file: &str,
    name: &str,
    tensor: &ListedTensor,
    available_bytes: u64,
) -> Result<Range<usize>, StreamError> {
    let (begin, end) = (tensor.offset, tensor.offset.checked_add(tensor.num_bytes));
    let in_file = |offset: u64| {
        usize::try_from(offset).expect("the offset was compared with a slice's length")
    };
    match end {
        Some(end) if end <= available_bytes => Ok(in_file(begin)..in_file(end)),
        _ => Err(StreamError::OutOfBounds {
            file: file.to_owned(),
            tensor: shorten(name),
            begin,
            end: end.unwrap_or(u64::MAX),
            available_bytes,
        }),
    }
}

fn check_overlap(file: &str, tensors: &BTreeMap<String, PlacedTensor>) -> Result<(), StreamError> {
    let ranges = tensors
        .iter()
        .filter(|(_, tensor)| !tensor.range.is_empty());
    let mut ordered: Vec<_> = ranges
        .map(|(name, tensor)| (tensor.range.start, tensor.range.end, name))
        .collect();
    ordered.sort_unstable();
    let overlap = ordered
        .windows(2)
        .find(|pair| matches!(pair, [(_, end, _), (begin, ..)] if begin < end));
    match overlap {
        Some([(.., other), (begin, _, tensor)]) => Err(StreamError::Overlap {
            file: file.to_owned(),
            tensor: shorten(tensor),
            other: shorten(other),
            offset: *begin as u64,
        }),
        _ => Ok(()),
    }
}
