//! One tensor as a file stores it, little-endian and row-major, as tensor data.
//!
//! Aligned bytes are shared with the file, others are copied: tensor data must lie at a multiple of
//! its element's size. The table below is the only one of the dtypes adapters are read in.

use std::path::Path;

use burn::tensor::{AllocationProperty, Bytes, DType, TensorData};

use crate::PatchError;

/// The tensor `key` of the file `path`: `bytes` under the type tag and shape that the file gives.
///
/// # Errors
/// [`PatchError::UnsupportedDtype`], or [`PatchError::WrongSize`] when the bytes are more or fewer than
/// the shape needs.
pub fn stored_tensor(
    path: &Path,
    key: &str,
    tag: &str,
    shape: &[usize],
    bytes: bytes::Bytes,
) -> Result<TensorData, PatchError> {
    let dtype = dtype_of(tag).ok_or_else(|| PatchError::UnsupportedDtype {
        path: path.into(),
        key: key.into(),
        found: tag.into(),
    })?;
    let num_bytes = bytes.len();
    // An empty view has no address that a shared allocation could keep.
    let bytes = if bytes.is_empty() || bytes.as_ptr().align_offset(dtype.size()) != 0 {
        Bytes::from_bytes_vec(bytes.to_vec())
    } else {
        Bytes::from_shared(bytes, AllocationProperty::File)
    };
    TensorData::try_from_bytes(bytes, shape, dtype).map_err(|_| PatchError::WrongSize {
        path: path.into(),
        key: key.into(),
        dtype: tag.into(),
        shape: shape.into(),
        found_bytes: num_bytes,
    })
}

fn dtype_of(tag: &str) -> Option<DType> {
    DTYPES
        .iter()
        .find_map(|(known, dtype)| (*known == tag).then_some(*dtype))
}

/// Type tags of safetensors.
const DTYPES: [(&str, DType); 13] = [
    ("F64", DType::F64),
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("I64", DType::I64),
    ("I32", DType::I32),
    ("I16", DType::I16),
    ("I8", DType::I8),
    ("U64", DType::U64),
    ("U32", DType::U32),
    ("U16", DType::U16),
    ("U8", DType::U8),
    ("BOOL", DType::U8),
];
