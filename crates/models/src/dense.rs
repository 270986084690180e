//! Reading a small dense tensor of a source as f32.

use bytes::Bytes;
use half::{bf16, f16};
use overglaze_stream::WeightSource;

use crate::ModelError;

/// The values and the shape of a tensor stored as F32, F16 or BF16, little-endian.
pub(crate) fn read_f32(
    source: &dyn WeightSource,
    tensor: &str,
) -> Result<(Vec<f32>, Vec<usize>), ModelError> {
    let entry = source
        .entries()
        .get(tensor)
        .ok_or_else(|| ModelError::MissingTensor {
            file: source.label(),
            tensor: tensor.to_owned(),
        })?;
    let bytes = source.read(tensor)?;
    let values = match entry.tag.as_str() {
        "F32" => words(&bytes, f32::from_le_bytes),
        "F16" => words(&bytes, |word| f16::from_le_bytes(word).to_f32()),
        "BF16" => words(&bytes, |word| bf16::from_le_bytes(word).to_f32()),
        found => {
            return Err(ModelError::NotFloat {
                file: source.label(),
                tensor: tensor.to_owned(),
                found: found.to_owned(),
            });
        }
    };
    let count = entry
        .shape
        .iter()
        .try_fold(1usize, |count, len| count.checked_mul(*len));
    if count != Some(values.len()) {
        return Err(ModelError::TensorShape {
            file: source.label(),
            tensor: tensor.to_owned(),
            found: entry.shape.clone(),
            expected: format!("a shape of {} values", values.len()),
        });
    }
    Ok((values, entry.shape.clone()))
}

fn words<const N: usize>(bytes: &Bytes, decode: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (words, _) = bytes.as_chunks::<N>();
    words.iter().map(|word| decode(*word)).collect()
}
