//! One weight of a source whose format and shape have been checked: what to read, and where it stands in a slot.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor, TensorData};
use bytes::Bytes;
use overglaze_quant::{FoundPart, FoundWeight, Part, Parts, QuantFormat, QuantizedTensor};
use overglaze_stream::{StreamError, WeightSource};

use crate::Error;

/// A weight of a source: one tensor, or several.
#[derive(Clone, Debug)]
pub(crate) struct TensorSpec {
    /// Name of its main tensor.
    pub(crate) name: String,
    pub(crate) format: &'static dyn QuantFormat,
    /// `[d_output, d_input]`; a vector of n values is `[1, n]`.
    pub(crate) shape: [usize; 2],
    parts: Vec<PartSpec>,
}

/// A part of a weight: where its bytes are, and how many.
#[derive(Clone, Debug)]
struct PartSpec {
    name: &'static str,
    tag: String,
    shape: Vec<usize>,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    InSource { tensor: String, num_bytes: usize },
    Known(Bytes),
}

impl TensorSpec {
    /// Checks that `found`, the weight `name` of `source`, is a matrix of `shape`. Its bytes are looked at as a view:
    /// nothing is loaded.
    pub(crate) fn new(
        source: &dyn WeightSource,
        name: &str,
        found: FoundWeight,
        shape: [usize; 2],
    ) -> Result<Self, Error> {
        let parts = found.parts.into_iter();
        let spec = Self {
            name: name.into(),
            format: found.format,
            shape,
            parts: parts
                .map(|part| PartSpec::new(source, part))
                .collect::<Result<_, _>>()?,
        };
        let parts = spec.read(source)?;
        let is_valid = spec.format.validate(shape, &parts);
        is_valid.map_err(|source| spec.quant_error(source))?;
        Ok(spec)
    }

    /// The parts as views into the source.
    pub(crate) fn read(&self, source: &dyn WeightSource) -> Result<Parts, StreamError> {
        let parts = self.parts.iter().map(|part| {
            let bytes = match &part.place {
                Place::InSource { tensor, .. } => source.read(tensor)?,
                Place::Known(bytes) => bytes.clone(),
            };
            Ok(part.with(bytes))
        });
        parts.collect::<Result<_, StreamError>>().map(Parts::new)
    }

    /// Bytes of all parts.
    pub(crate) fn num_bytes(&self) -> usize {
        self.parts.iter().map(PartSpec::num_bytes).sum()
    }

    /// Bytes the parts take in a slot.
    pub(crate) fn staged_bytes(&self) -> usize {
        let places = self.places_in_slot().map(|(place, _)| place);
        places
            .filter(|place| !place.is_empty())
            .map(|place| place.end)
            .max()
            .unwrap_or(0)
    }

    /// Copies the parts from `source` to where they stand in a slot.
    pub(crate) fn stage(
        &self,
        source: &dyn WeightSource,
        slot: &mut [u8],
    ) -> Result<(), StreamError> {
        for (place, part) in self.places_in_slot() {
            if let Place::InSource { tensor, .. } = &part.place {
                source.read_into(tensor, &mut slot[place])?;
            }
        }
        Ok(())
    }

    /// The parts as they stand in a slot.
    pub(crate) fn staged_parts(&self, slot: &Bytes) -> Parts {
        let parts = self.places_in_slot().map(|(place, part)| {
            part.with(match &part.place {
                Place::InSource { .. } => slot.slice(place),
                Place::Known(bytes) => bytes.clone(),
            })
        });
        Parts::new(parts.collect())
    }

    /// Where the parts stand in a slot: each begins at a multiple of 64, so that all are aligned.
    fn places_in_slot(&self) -> impl Iterator<Item = (Range<usize>, &PartSpec)> {
        let mut end = 0_usize;
        self.parts.iter().map(move |part| {
            let start = end.next_multiple_of(ALIGNMENT);
            let num_bytes = match &part.place {
                Place::InSource { num_bytes, .. } => *num_bytes,
                Place::Known(_) => return (start..start, part),
            };
            end = start + num_bytes;
            (start..end, part)
        })
    }

    /// The matrix over `parts`.
    pub(crate) fn packed(&self, parts: Parts) -> Result<QuantizedTensor, Error> {
        QuantizedTensor::new(self.format, self.shape, parts)
            .map_err(|source| self.quant_error(source))
    }

    /// The values as a vector of `dtype` on `device`.
    pub(crate) fn vector(
        &self,
        parts: Parts,
        device: &Device,
        dtype: DType,
    ) -> Result<Tensor<1>, Error> {
        let packed = self.packed(parts)?;
        let mut values = vec![0.0_f32; self.num_values()];
        packed.decode_rows(0..self.shape[0], &mut values);
        Ok(Tensor::from_data(
            TensorData::new(values, [self.num_values()]),
            (device, dtype),
        ))
    }

    /// The same, whose values are going to be needed.
    pub(crate) fn with_values(self) -> Result<Self, Error> {
        if self.format.has_values() {
            return Ok(self);
        }
        Err(Error::NoValues {
            tensor: self.name,
            format: self.format.name(),
        })
    }

    /// How many values there are; the format has checked that their f32 bytes can be counted.
    pub(crate) fn num_values(&self) -> usize {
        self.shape[0] * self.shape[1]
    }

    fn quant_error(&self, source: overglaze_quant::QuantError) -> Error {
        Error::Quant {
            tensor: self.name.clone(),
            source: Box::new(source),
        }
    }
}

#[cfg(test)]
impl TensorSpec {
    /// A weight that is one tensor of `num_bytes`, unchecked.
    pub(crate) fn of_one_tensor(
        name: &str,
        format: &'static dyn QuantFormat,
        shape: [usize; 2],
        num_bytes: usize,
    ) -> Self {
        let tensor = name.to_owned();
        let values = PartSpec {
            name: Part::VALUES,
            tag: String::new(),
            shape: shape.to_vec(),
            place: Place::InSource { tensor, num_bytes },
        };
        Self {
            name: name.into(),
            format,
            shape,
            parts: vec![values],
        }
    }
}

impl PartSpec {
    fn new(source: &dyn WeightSource, found: FoundPart) -> Result<Self, Error> {
        let (name, tensor) = match found {
            FoundPart::InFile { part, tensor } => (part, tensor),
            FoundPart::Known(part) => {
                return Ok(Self {
                    name: part.name,
                    tag: part.tag,
                    shape: part.shape,
                    place: Place::Known(part.bytes),
                });
            }
        };
        let entry = crate::source_tensor::entry(source, &tensor)?;
        let (tag, shape) = (entry.tag.clone(), entry.shape.clone());
        // The view's length, as far as memory can be addressed at all.
        let num_bytes = source.read(&tensor)?.len();
        let place = Place::InSource { tensor, num_bytes };
        Ok(Self {
            name,
            tag,
            shape,
            place,
        })
    }

    fn with(&self, bytes: Bytes) -> Part {
        Part {
            name: self.name,
            tag: self.tag.clone(),
            shape: self.shape.clone(),
            bytes,
        }
    }

    fn num_bytes(&self) -> usize {
        match &self.place {
            Place::InSource { num_bytes, .. } => *num_bytes,
            Place::Known(bytes) => bytes.len(),
        }
    }
}

/// What parts are aligned to in a slot, as the slot itself is.
pub(crate) const ALIGNMENT: usize = 64;
