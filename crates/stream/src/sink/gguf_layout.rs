//! What a GGUF file will hold, before any of it is written.

use std::collections::BTreeSet;

use crate::{
    GgufError, GgufValue, SinkError, StreamError,
    source::{
        gguf::{
            header::{ALIGNMENT_KEY, MAGIC, alignment},
            tensor_list::MAX_DIMENSIONS,
        },
        header::{MAX_HEADER_BYTES, duplicate, shorten},
    },
};

/// A tensor of a GGUF file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufTensor {
    /// Name.
    pub name: String,
    /// Row-major, `[d_output, d_input]` for a weight; the file holds it in reverse.
    pub shape: Vec<usize>,
    /// Number of the type.
    pub type_id: u32,
    /// Size of the stored bytes.
    pub num_bytes: u64,
}

/// Tensors and metadata of a GGUF file to be written; checked, and in the order they are written in.
#[derive(Clone, Debug)]
pub struct GgufLayout {
    label: String,
    tensors: Vec<GgufTensor>,
    /// Where each tensor begins in the data.
    offsets: Vec<u64>,
    values: Vec<(String, GgufValue)>,
    alignment: u64,
}

impl GgufLayout {
    /// A file of `tensors` and metadata `values`, both in the order given; `label` names the file in messages.
    ///
    /// Data are aligned to the value `general.alignment`, or to 32 bytes. That a tensor's bytes are those of its shape
    /// and type is the caller's to see to.
    ///
    /// # Errors
    /// [`StreamError::DuplicateTensor`], [`GgufError::DuplicateKey`], [`GgufError::KeyValue`],
    /// [`SinkError::DimensionCount`] or [`SinkError::DataTooLong`].
    pub fn new(
        label: impl Into<String>,
        tensors: impl IntoIterator<Item = GgufTensor>,
        values: impl IntoIterator<Item = (String, GgufValue)>,
    ) -> Result<Self, StreamError> {
        let label = label.into();
        let tensors: Vec<_> = tensors.into_iter().collect();
        let values: Vec<_> = values.into_iter().collect();
        check_keys(&label, &values)?;
        check_tensors(&label, &tensors)?;
        let aligned = values.iter().find(|(key, _)| key == ALIGNMENT_KEY);
        let alignment = alignment(&label, aligned.map(|(_, value)| value))?;
        let offsets = offsets(&label, &tensors, alignment)?;
        Ok(Self {
            label,
            tensors,
            offsets,
            values,
            alignment,
        })
    }

    /// What to call the file in messages.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The tensors, in the order they are written in.
    #[must_use]
    pub fn tensors(&self) -> &[GgufTensor] {
        &self.tensors
    }

    /// Bytes of all tensors, without what lies between them.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let sizes = self.tensors.iter().map(|tensor| tensor.num_bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// What stands before the data, padded.
    pub(super) fn header(&self) -> Result<Vec<u8>, SinkError> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.values.len() as u64).to_le_bytes());
        for (key, value) in &self.values {
            put_text(&mut header, key);
            header.extend(value.value_type().id().to_le_bytes());
            value.encode(&mut header);
        }
        for (tensor, offset) in self.tensors.iter().zip(&self.offsets) {
            put_tensor(&mut header, tensor, *offset);
        }
        let found_bytes = header.len() as u64;
        if found_bytes > MAX_HEADER_BYTES {
            return Err(SinkError::HeaderTooLong {
                file: self.label.clone(),
                found_bytes,
                limit_bytes: MAX_HEADER_BYTES,
            });
        }
        header.extend(self.padding(found_bytes));
        Ok(header)
    }

    /// What follows `num_bytes` up to the next aligned place.
    pub(super) fn padding(&self, num_bytes: u64) -> Vec<u8> {
        let num_padding = num_bytes.next_multiple_of(self.alignment) - num_bytes;
        vec![0; usize::try_from(num_padding).expect("it is less than a 32-bit alignment")]
    }
}

fn check_keys(file: &str, values: &[(String, GgufValue)]) -> Result<(), GgufError> {
    let mut seen = BTreeSet::new();
    match values.iter().find(|(key, _)| !seen.insert(key)) {
        Some((key, _)) => Err(GgufError::DuplicateKey {
            file: file.to_owned(),
            key: shorten(key),
        }),
        None => Ok(()),
    }
}

fn check_tensors(file: &str, tensors: &[GgufTensor]) -> Result<(), StreamError> {
    let mut seen = BTreeSet::new();
    for tensor in tensors {
        if !seen.insert(&tensor.name) {
            return Err(duplicate(file, &tensor.name));
        }
        if tensor.shape.len() > MAX_DIMENSIONS {
            return Err(SinkError::DimensionCount {
                file: file.to_owned(),
                tensor: shorten(&tensor.name),
                found: tensor.shape.len(),
                limit: MAX_DIMENSIONS,
            }
            .into());
        }
    }
    Ok(())
}

fn offsets(file: &str, tensors: &[GgufTensor], alignment: u64) -> Result<Vec<u64>, SinkError> {
    let mut next = 0_u64;
    let offset = |tensor: &GgufTensor| {
        let begin = next;
        let end = begin.checked_add(tensor.num_bytes);
        let padded = end.and_then(|end| end.checked_next_multiple_of(alignment));
        next = padded.ok_or_else(|| SinkError::DataTooLong {
            file: file.to_owned(),
            tensor: shorten(&tensor.name),
        })?;
        Ok(begin)
    };
    tensors.iter().map(offset).collect()
}

fn put_tensor(header: &mut Vec<u8>, tensor: &GgufTensor, offset: u64) {
    put_text(header, &tensor.name);
    let num_dimensions = u32::try_from(tensor.shape.len()).expect("at most four, as was checked");
    header.extend(num_dimensions.to_le_bytes());
    for dimension in tensor.shape.iter().rev() {
        header.extend((*dimension as u64).to_le_bytes());
    }
    header.extend(tensor.type_id.to_le_bytes());
    header.extend(offset.to_le_bytes());
}

fn put_text(header: &mut Vec<u8>, text: &str) {
    header.extend((text.len() as u64).to_le_bytes());
    header.extend_from_slice(text.as_bytes());
}

/// Of the container; every current reader takes it.
const VERSION: u32 = 3;
