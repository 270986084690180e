//! Laying a rewriting out, and writing it.

use std::io::Write;

use burn::tensor::FloatDType;
use bytes::Bytes;
use overglaze_quant::{Parts, QuantFormat, QuantizedTensor, StoredContent};
use overglaze_stream::{
    GgufArray, GgufLayout, GgufTensor, GgufType, GgufValue, GgufWriter, SafetensorsLayout,
    SafetensorsWriter, StreamError, TensorEntry, is_safetensors_type,
};

use crate::{Error, packed_weight};

use super::{FileRewrite, Outcome, RewrittenWeight};

impl FileRewrite<'_> {
    /// That the new file can be a safetensors file: it has types for every tensor.
    ///
    /// # Errors
    /// [`Error::NoSafetensorsType`] names the first weight that has none.
    pub fn check_safetensors(&self) -> Result<(), Error> {
        for (name, weight) in &self.weights {
            for (_, new) in self.tensors(name, weight) {
                if !is_safetensors_type(&new.entry.tag) {
                    return Err(Error::NoSafetensorsType {
                        tensor: name.clone(),
                        found: new.entry.tag,
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether the new file can be a GGUF file: every weight is one tensor of a type that GGUF has a number for.
    ///
    /// # Errors
    /// [`Error::NoGgufType`] names the first weight that is not.
    pub fn check_gguf(&self) -> Result<(), Error> {
        self.gguf_tensors().map(drop)
    }

    /// The safetensors file to be written, under `label` in messages.
    ///
    /// # Errors
    /// [`Error::Stream`] when there can be no such file.
    pub fn safetensors_layout(&self, label: impl Into<String>) -> Result<SafetensorsLayout, Error> {
        let tensors = self
            .weights
            .iter()
            .flat_map(|(name, weight)| self.tensors(name, weight));
        let tensors = tensors.map(|(name, tensor)| (name, tensor.entry));
        Ok(SafetensorsLayout::in_order(
            label,
            tensors,
            self.metadata(),
        )?)
    }

    /// The GGUF file to be written, under `label` in messages, with metadata `values`.
    ///
    /// # Errors
    /// [`Error::NoGgufType`], or [`Error::Stream`] when there can be no such file.
    pub fn gguf_layout(
        &self,
        label: impl Into<String>,
        mut values: Vec<(String, GgufValue)>,
    ) -> Result<GgufLayout, Error> {
        let tensors = self.gguf_tensors()?;
        values.extend(self.original_shapes(&tensors));
        Ok(GgufLayout::new(label, tensors, values)?)
    }

    /// Writes the file `layout` to `sink`, telling `progress` the bytes of tensors written so far.
    ///
    /// # Errors
    /// [`Error::Quant`] where a weight cannot be read, [`Error::PackNotFinite`] or [`Error::DecodeOverflow`] where its
    /// values cannot be written, or [`Error::Stream`] where one cannot be read or written.
    pub fn write_safetensors<W: Write>(
        &self,
        layout: SafetensorsLayout,
        sink: W,
        progress: &mut dyn FnMut(u64),
    ) -> Result<W, Error> {
        let mut writer = SafetensorsWriter::begin(layout, sink)?;
        self.write(&mut writer, progress)?;
        Ok(writer.finish()?)
    }

    /// As [`write_safetensors`](Self::write_safetensors).
    ///
    /// # Errors
    /// As [`write_safetensors`](Self::write_safetensors).
    pub fn write_gguf<W: Write>(
        &self,
        layout: GgufLayout,
        sink: W,
        progress: &mut dyn FnMut(u64),
    ) -> Result<W, Error> {
        let mut writer = GgufWriter::begin(layout, sink)?;
        self.write(&mut writer, progress)?;
        Ok(writer.finish()?)
    }

    fn write(
        &self,
        sink: &mut impl TensorSink,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Error> {
        let mut written = 0;
        for (name, weight) in &self.weights {
            let parts = self.parts(name, weight)?;
            for (tensor, new) in self.tensors(name, weight) {
                let copied;
                let bytes: &[u8] = match &new.content {
                    StoredContent::Bytes(bytes) => bytes,
                    StoredContent::Part(part) => match &parts {
                        Some(parts) => parts.bytes(part),
                        None => {
                            copied = self.source.read(&tensor)?;
                            &copied
                        }
                    },
                };
                sink.put(&tensor, bytes)?;
                written += bytes.len() as u64;
                progress(written);
            }
        }
        Ok(())
    }

    /// The new parts of a weight; `None` where its tensors go over as they are.
    fn parts(&self, name: &str, weight: &RewrittenWeight) -> Result<Option<Parts>, Error> {
        let matrix = || Ok::<_, Error>(packed_weight(self.source, name)?.0);
        Ok(match weight.outcome {
            Outcome::Copied => None,
            Outcome::Decoded(dtype) => {
                let matrix = matrix()?;
                let values = matrix.decoded(dtype);
                if dtype == FloatDType::F16 && has_overflown(&matrix, values.as_bytes()) {
                    return Err(Error::DecodeOverflow {
                        tensor: name.into(),
                        dtype: plain_type(dtype).0,
                    });
                }
                Some(Parts::values(Bytes::copy_from_slice(values.as_bytes())))
            }
            Outcome::Packed(encoder) => {
                let matrix = matrix()?;
                let values = matrix.decoded(FloatDType::F32);
                let values: &[f32] = values.as_slice().expect("the values are f32");
                if !values.iter().all(|value| value.is_finite()) {
                    return Err(Error::PackNotFinite {
                        tensor: name.into(),
                        format: encoder.encoding(),
                    });
                }
                let parts = encoder.encode(values, matrix.shape());
                if !is_finite(encoder.format(), matrix.shape(), &parts, values) {
                    return Err(Error::PackOverflow {
                        tensor: name.into(),
                        format: encoder.encoding(),
                    });
                }
                Some(parts)
            }
        })
    }

    /// The tensors a weight becomes, with their names.
    fn tensors(&self, name: &str, weight: &RewrittenWeight) -> Vec<(String, NewTensor)> {
        let shape = &weight.stored.shape;
        match weight.outcome {
            Outcome::Copied => {
                let known = weight.stored.tensors.iter();
                let entries = known.map(|name| (name, &self.source.entries()[name]));
                let entries = entries.map(|(name, entry)| {
                    let entry = TensorEntry {
                        file: None,
                        ..entry.clone()
                    };
                    (name.clone(), NewTensor::new(entry))
                });
                entries.collect()
            }
            Outcome::Decoded(dtype) => {
                let num_values = shape.iter().product::<usize>() as u64;
                let (tag, size) = plain_type(dtype);
                let entry = TensorEntry {
                    tag: tag.into(),
                    shape: shape.clone(),
                    num_bytes: num_values * size,
                    file: None,
                };
                vec![(name.into(), NewTensor::new(entry))]
            }
            Outcome::Packed(encoder) => {
                let tensors = encoder.stored_as(name, shape).into_iter();
                let tensors = tensors.map(|tensor| {
                    let entry = TensorEntry {
                        tag: tensor.tag.into(),
                        shape: tensor.shape,
                        num_bytes: tensor.num_bytes as u64,
                        file: None,
                    };
                    let content = tensor.content;
                    (tensor.name, NewTensor { entry, content })
                });
                tensors.collect()
            }
        }
    }

    fn gguf_tensors(&self) -> Result<Vec<GgufTensor>, Error> {
        let tensors = self.weights.iter().map(|(name, weight)| {
            let format = match weight.outcome {
                Outcome::Packed(encoder) => Some(encoder.format()),
                Outcome::Copied => weight.stored.format,
                Outcome::Decoded(dtype) => plain_format(dtype),
            };
            let new = self.tensors(name, weight);
            let type_id = format.and_then(QuantFormat::ggml_type);
            let ([(tensor, new)], Some(type_id)) = (new.as_slice(), type_id) else {
                return Err(Error::NoGgufType {
                    tensor: name.clone(),
                    found: format.map_or_else(|| weight.stored.tag.clone(), |f| f.name().into()),
                });
            };
            let block_len = format
                .and_then(QuantFormat::block)
                .map_or(1, |block| block.len);
            Ok(GgufTensor {
                name: tensor.clone(),
                shape: gguf_shape(&weight.stored.shape, block_len),
                type_id,
                num_bytes: new.entry.num_bytes,
            })
        });
        tensors.collect()
    }

    /// The shapes that GGUF's rule of whole blocks a row hides, under the keys that `ComfyUI` reads.
    fn original_shapes(&self, tensors: &[GgufTensor]) -> Vec<(String, GgufValue)> {
        let hidden = tensors.iter().filter_map(|tensor| {
            let shape = &self.weights[&tensor.name].stored.shape;
            if *shape == tensor.shape {
                return None;
            }
            let sizes = shape
                .iter()
                .map(|size| i32::try_from(*size).ok().map(GgufValue::I32));
            let sizes = GgufArray::new(GgufType::I32, &sizes.collect::<Option<Vec<_>>>()?)?;
            let key = format!("comfy.gguf.orig_shape.{}", tensor.name);
            Some((key, GgufValue::Array(sizes)))
        });
        hidden.collect()
    }
}

/// Whether what was packed from `values` decodes to finite values. Only large ones can have gone beyond a narrow scale.
fn is_finite(
    format: &'static dyn QuantFormat,
    shape: [usize; 2],
    parts: &Parts,
    values: &[f32],
) -> bool {
    if values.iter().all(|value| value.abs() < LARGE) {
        return true;
    }
    let packed = QuantizedTensor::new(format, shape, parts.clone());
    packed.is_ok_and(|packed| {
        let values = packed.decoded(FloatDType::F32);
        let values: &[f32] = values.as_slice().expect("the values are f32");
        values.iter().all(|value| value.is_finite())
    })
}

/// Below this no scale of 16 bits overflows.
const LARGE: f32 = 60_000.0;

/// Whether a value of `matrix` is a number and infinite in its f16 `bytes`.
fn has_overflown(matrix: &QuantizedTensor, bytes: &[u8]) -> bool {
    let infinite = |bytes: &[u8; 2]| u16::from_le_bytes(*bytes) & 0x7FFF == 0x7C00;
    let (halves, _) = bytes.as_chunks::<2>();
    if !halves.iter().any(infinite) {
        return false;
    }
    let values = matrix.decoded(FloatDType::F32);
    let values: &[f32] = values.as_slice().expect("the values are f32");
    let mut pairs = values.iter().zip(halves);
    pairs.any(|(value, half)| value.is_finite() && infinite(half))
}

/// The shape a GGUF file states, whose rows are whole blocks: that of the matrix where the last axis is none, and rows of
/// one block where those of the matrix are none either.
fn gguf_shape(shape: &[usize], block_len: usize) -> Vec<usize> {
    let is_whole = |row: usize| row.is_multiple_of(block_len);
    let (Some((first, others)), Some(last)) = (shape.split_first(), shape.last()) else {
        return shape.to_vec();
    };
    if is_whole(*last) && shape.len() <= MAX_GGUF_AXES {
        return shape.to_vec();
    }
    let d_input: usize = others.iter().product();
    match is_whole(d_input) {
        true => vec![*first, d_input],
        false => vec![first * d_input / block_len, block_len],
    }
}

/// Axes of a tensor in a GGUF file.
const MAX_GGUF_AXES: usize = 4;

/// A file that is written tensor by tensor.
trait TensorSink {
    /// Writes the next tensor.
    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), StreamError>;
}

impl<W: Write> TensorSink for SafetensorsWriter<W> {
    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), StreamError> {
        self.tensor(name, bytes)
    }
}

impl<W: Write> TensorSink for GgufWriter<W> {
    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), StreamError> {
        self.tensor(name, bytes)
    }
}

/// A tensor to be written.
struct NewTensor {
    entry: TensorEntry,
    content: StoredContent,
}

impl NewTensor {
    fn new(entry: TensorEntry) -> Self {
        let content = StoredContent::Part(overglaze_quant::Part::VALUES);
        Self { entry, content }
    }
}

/// Tag and bytes of a plain type.
fn plain_type(dtype: FloatDType) -> (&'static str, u64) {
    match dtype {
        FloatDType::F16 => ("F16", 2),
        FloatDType::BF16 => ("BF16", 2),
        _ => ("F32", 4),
    }
}

fn plain_format(dtype: FloatDType) -> Option<&'static dyn QuantFormat> {
    overglaze_quant::format_by_tag(plain_type(dtype).0).ok()
}
