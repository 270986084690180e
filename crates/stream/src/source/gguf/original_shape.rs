//! Shapes that a converter changed to make rows of whole blocks, and noted beside the tensor.
//!
//! `comfy.gguf.orig_shape.<tensor>` is an array of whole numbers, row-major. Origin: the converter of ComfyUI-GGUF.

use std::collections::BTreeMap;

use super::{GgufError, GgufValue, metadata::describe};
use crate::source::header::shorten;

/// Before the tensor's name.
const PREFIX: &str = "comfy.gguf.orig_shape.";

/// More dimensions than any framework has.
const MAX_DIMENSIONS: usize = 64;

/// The shape noted for `tensor`, if there is one.
pub(super) fn original_shape(
    file: &str,
    values: &BTreeMap<String, GgufValue>,
    tensor: &str,
    num_elements: u64,
) -> Result<Option<Vec<usize>>, GgufError> {
    let key = format!("{PREFIX}{tensor}");
    let Some(value) = values.get(&key) else {
        return Ok(None);
    };
    let shape = shape_in(value).filter(|shape| product(shape) == Some(num_elements));
    shape.map(Some).ok_or_else(|| GgufError::OriginalShape {
        file: file.to_owned(),
        key: shorten(&key),
        found: describe(value),
        num_elements,
    })
}

fn shape_in(value: &GgufValue) -> Option<Vec<usize>> {
    let array = value
        .as_array()
        .filter(|array| array.len() <= MAX_DIMENSIONS)?;
    let dimension = |value: GgufValue| usize::try_from(value.as_u64()?).ok();
    array.iter().map(dimension).collect()
}

fn product(shape: &[usize]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |product, dimension| {
        product.checked_mul(*dimension as u64)
    })
}
