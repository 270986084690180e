//! Tensor types: the numbers in a file, and the tag and size behind each.
//!
//! Which packed types there are is the caller's knowledge. The container's own are the plain numbers that are no
//! type of weights, and the numbers of types that ggml gave up.

use super::GgufError;
use crate::source::header::shorten;

/// How the elements of a tensor type lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockType {
    /// The type's name, which becomes the tag of its tensors.
    pub tag: &'static str,
    /// Elements of a block, at least 1; a row is a whole number of blocks.
    pub block_len: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
}

/// From the number of a tensor type to the type, where the caller knows it.
pub type BlockTypes<'a> = dyn Fn(u32) -> Option<BlockType> + 'a;

/// The type `id` of the tensor `name`.
pub(super) fn find_type(
    file: &str,
    name: &str,
    id: u32,
    block_types: &BlockTypes<'_>,
) -> Result<BlockType, GgufError> {
    let (file, tensor) = (file.to_owned(), shorten(name));
    if let Some((_, name, successor)) = REMOVED.iter().find(|(removed, ..)| *removed == id) {
        return Err(GgufError::RemovedType {
            file,
            tensor,
            id,
            name,
            successor,
        });
    }
    let Some(block_type) = block_types(id).or_else(|| number_type(id)) else {
        return Err(GgufError::UnknownType { file, tensor, id });
    };
    assert!(
        block_type.block_len > 0,
        "a block of {} has no elements",
        block_type.tag
    );
    Ok(block_type)
}

fn number_type(id: u32) -> Option<BlockType> {
    let (_, tag, block_bytes) = NUMBERS.iter().find(|(number, ..)| *number == id)?;
    Some(BlockType {
        tag,
        block_len: 1,
        block_bytes: *block_bytes,
    })
}

/// Number, name and bytes of the types that hold positions, counts and constants.
const NUMBERS: [(u32, &str, usize); 5] = [
    (24, "I8", 1),
    (25, "I16", 2),
    (26, "I32", 4),
    (27, "I64", 8),
    (28, "F64", 8),
];

/// Number, name, and what to take instead.
const REMOVED: [(u32, &str, &str); 8] = [
    (4, "Q4_2", "a type of 4 bits that is still in use"),
    (5, "Q4_3", "a type of 4 bits that is still in use"),
    (31, "Q4_0_4_4", "Q4_0 without interleaving"),
    (32, "Q4_0_4_8", "Q4_0 without interleaving"),
    (33, "Q4_0_8_8", "Q4_0 without interleaving"),
    (36, "IQ4_NL_4_4", "IQ4_NL without interleaving"),
    (37, "IQ4_NL_4_8", "IQ4_NL without interleaving"),
    (38, "IQ4_NL_8_8", "IQ4_NL without interleaving"),
];
