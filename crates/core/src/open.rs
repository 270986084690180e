//! Opening weights of any container, with what the formats compiled in know of its types.

use std::{path::Path, sync::Arc};

use overglaze_stream::{BlockType, StreamError, WeightSource};

/// Opens weights by path: a safetensors or GGUF file, the `.index.json` of a sharded checkpoint, or a folder.
///
/// # Errors
/// As [`overglaze_stream::open`].
pub fn open(path: &Path) -> Result<Arc<dyn WeightSource>, StreamError> {
    overglaze_stream::open(path, &block_type)
}

/// The tensor type that has the number `id` in GGUF files; no format claims one yet.
fn block_type(_id: u32) -> Option<BlockType> {
    None
}
