//! Reading a small dense tensor of a source as f32, in whatever float type it is stored.

use overglaze_quant::{Parts, QuantizedTensor, format_by_tag};
use overglaze_stream::WeightSource;

use crate::ModelError;

/// The finite values and the shape of a tensor stored as floats.
///
/// # Errors
/// [`ModelError::MissingTensor`], [`ModelError::NotFloat`], [`ModelError::TensorShape`] when the shape is not
/// that of the bytes, [`ModelError::NotFinite`] or [`ModelError::Stream`].
pub fn read_floats(
    source: &dyn WeightSource,
    tensor: &str,
) -> Result<(Vec<f32>, Vec<usize>), ModelError> {
    let file = || source.label();
    let tensor_name = || tensor.to_owned();
    let entry = source.entries().get(tensor);
    let entry = entry.ok_or_else(|| ModelError::MissingTensor {
        file: file(),
        tensor: tensor_name(),
    })?;
    let format = format_by_tag(&entry.tag).ok();
    let format = format.filter(|format| format.dense_dtype().is_some());
    let format = format.ok_or_else(|| ModelError::NotFloat {
        file: file(),
        tensor: tensor_name(),
        found: entry.tag.clone(),
    })?;
    let wrong_shape = || ModelError::TensorShape {
        file: file(),
        tensor: tensor_name(),
        found: entry.shape.clone(),
        expected: format!("a shape of {} bytes of {}", entry.num_bytes, entry.tag),
    };
    let sizes = entry.shape.iter();
    let count = sizes.copied().try_fold(1_usize, usize::checked_mul);
    let count = count.ok_or_else(wrong_shape)?;
    let parts = Parts::values(source.read(tensor)?);
    let packed = QuantizedTensor::new(format, [1, count], parts).map_err(|_| wrong_shape())?;
    let mut values = vec![0.0; count];
    packed.decode_rows(0..1, &mut values);
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok((values, entry.shape.clone())),
        Some(found) => Err(ModelError::NotFinite {
            file: file(),
            tensor: tensor_name(),
            found: *found,
        }),
    }
}
