//! The list of tensors in a header: name, dimensions, type and offset of each.
//!
//! Dimensions stand in reverse: the first is that of neighbouring elements, so a weight `[d_output, d_input]` has the
//! dimensions `d_input, d_output`. Sizes of types come from the caller.

use std::collections::BTreeMap;

use super::{
    BlockType, BlockTypes, GgufError, block_type::find_type, cursor::Cursor, header::check_count,
    metadata::MAX_TEXT_BYTES,
};
use crate::{
    StreamError,
    source::header::{duplicate, shorten},
};

/// Most dimensions of a tensor.
pub(crate) const MAX_DIMENSIONS: usize = 4;

/// A tensor as the header lists it, of a size that is known but not yet compared with the file.
#[derive(Debug)]
pub(super) struct ListedTensor {
    pub(super) tag: &'static str,
    /// Row-major, `[d_output, d_input]` for a weight.
    pub(super) shape: Vec<usize>,
    pub(super) num_elements: u64,
    pub(super) num_bytes: u64,
    /// From the first data byte.
    pub(super) offset: u64,
}

/// Reads `count` tensors.
pub(super) fn read_tensors(
    cursor: &mut Cursor<'_>,
    count: u64,
    block_types: &BlockTypes<'_>,
) -> Result<BTreeMap<String, ListedTensor>, StreamError> {
    let mut tensors = BTreeMap::new();
    let mut name_bytes = 0;
    for index in 0..count {
        let name = cursor.text(format_args!("the name of tensor number {index}"))?;
        name_bytes += name.len() as u64;
        check_count(cursor, "bytes of tensor names", name_bytes, MAX_TEXT_BYTES)?;
        let tensor = read_tensor(cursor, name, block_types)?;
        if tensors.contains_key(name) {
            return Err(duplicate(&cursor.file(), name));
        }
        tensors.insert(name.to_owned(), tensor);
    }
    Ok(tensors)
}

fn read_tensor(
    cursor: &mut Cursor<'_>,
    name: &str,
    block_types: &BlockTypes<'_>,
) -> Result<ListedTensor, StreamError> {
    let what = format_args!("the entry of the tensor `{name}`");
    let dimensions = read_dimensions(cursor, name)?;
    let id = cursor.u32(what)?;
    let offset = cursor.u64(what)?;
    let block_type = find_type(&cursor.file(), name, id, block_types)?;
    let overflow = || StreamError::ShapeOverflow {
        file: cursor.file(),
        tensor: shorten(name),
        shape: row_major(&dimensions),
    };
    let num_elements = product(&dimensions).ok_or_else(overflow)?;
    let num_bytes = match size(&dimensions, num_elements, block_type) {
        Size::Bytes(num_bytes) => num_bytes,
        Size::Overflow => return Err(overflow()),
        Size::Partial { row_len, block_len } => {
            return Err(GgufError::PartialBlock {
                file: cursor.file(),
                tensor: shorten(name),
                tag: block_type.tag,
                row_len,
                block_len,
            }
            .into());
        }
    };
    Ok(ListedTensor {
        tag: block_type.tag,
        shape: row_major(&dimensions),
        num_elements,
        num_bytes,
        offset,
    })
}

/// In the order of the file, the row's length first.
fn read_dimensions(cursor: &mut Cursor<'_>, name: &str) -> Result<Vec<u64>, GgufError> {
    let what = format_args!("the entry of the tensor `{name}`");
    let found = cursor.u32(what)?;
    if found as usize > MAX_DIMENSIONS {
        return Err(GgufError::DimensionCount {
            file: cursor.file(),
            tensor: shorten(name),
            found,
        });
    }
    (0..found).map(|_| cursor.u64(what)).collect()
}

/// Elements of a tensor, as far as ggml can count them: in 63 bits.
fn product(dimensions: &[u64]) -> Option<u64> {
    let product = dimensions
        .iter()
        .try_fold(1_u64, |product, dimension| product.checked_mul(*dimension));
    let fits = |number: &u64| i64::try_from(*number).is_ok() && usize::try_from(*number).is_ok();
    product.filter(fits).filter(|_| dimensions.iter().all(fits))
}

enum Size {
    Bytes(u64),
    Overflow,
    Partial { row_len: u64, block_len: u64 },
}

fn size(dimensions: &[u64], num_elements: u64, block_type: BlockType) -> Size {
    let row_len = dimensions.first().copied().unwrap_or(1);
    let block_len = block_type.block_len as u64;
    if row_len % block_len != 0 {
        return Size::Partial { row_len, block_len };
    }
    let num_blocks = num_elements / block_len;
    num_blocks
        .checked_mul(block_type.block_bytes as u64)
        .map_or(Size::Overflow, Size::Bytes)
}

/// The shape, as far as it fits the address space.
fn row_major(dimensions: &[u64]) -> Vec<usize> {
    let reversed = dimensions.iter().rev();
    reversed
        .map(|dimension| usize::try_from(*dimension).unwrap_or(usize::MAX))
        .collect()
}
