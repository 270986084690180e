//! What a safetensors file will hold, before any of it is written.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    SinkError, StreamError, TensorEntry,
    source::header::{MAX_HEADER_BYTES, METADATA, duplicate, num_bits, shorten},
};

/// Tensors and metadata of a file to be written; checked, and in the order they are written in.
#[derive(Clone, Debug)]
pub struct SafetensorsLayout {
    label: String,
    tensors: Vec<(String, TensorEntry)>,
    metadata: BTreeMap<String, String>,
}

impl SafetensorsLayout {
    /// A file of `tensors`, in whatever order they come; `label` names the file in messages.
    ///
    /// # Errors
    /// [`StreamError::DuplicateTensor`], [`SinkError::ReservedName`], [`StreamError::UnknownType`],
    /// [`StreamError::ShapeOverflow`] or [`StreamError::TensorSize`].
    pub fn new(
        label: impl Into<String>,
        tensors: impl IntoIterator<Item = (String, TensorEntry)>,
        metadata: BTreeMap<String, String>,
    ) -> Result<Self, StreamError> {
        let mut tensors: Vec<_> = tensors.into_iter().collect();
        tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut layout = Self::in_order(label, tensors, metadata)?;
        // The sort is stable, so names stay in order within one size.
        let element = |entry: &TensorEntry| num_bits(&entry.tag, &[]).flatten();
        let by_size = |(_, entry): &(String, TensorEntry)| Reverse(element(entry));
        layout.tensors.sort_by_key(by_size);
        Ok(layout)
    }

    /// As [`new`](Self::new), but the tensors are written in the order given: parts of one packed weight, which are
    /// made at once, can stand together. A tensor begins at a multiple of its element's size where the sizes of those
    /// before it have it so; readers must not rely on it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn in_order(
        label: impl Into<String>,
        tensors: impl IntoIterator<Item = (String, TensorEntry)>,
        metadata: BTreeMap<String, String>,
    ) -> Result<Self, StreamError> {
        let (label, tensors) = (label.into(), tensors.into_iter().collect::<Vec<_>>());
        let mut seen = BTreeSet::new();
        for (name, entry) in &tensors {
            check_size(&label, name, entry)?;
            if !seen.insert(name) {
                return Err(duplicate(&label, name));
            }
        }
        Ok(Self {
            label,
            tensors,
            metadata,
        })
    }

    /// What to call the file in messages.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The tensors, in the order they are written in.
    #[must_use]
    pub fn tensors(&self) -> &[(String, TensorEntry)] {
        &self.tensors
    }

    /// Bytes of all tensors.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let sizes = self.tensors.iter().map(|(_, entry)| entry.num_bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// The length word and the padded JSON.
    pub(super) fn header(&self) -> Result<Vec<u8>, StreamError> {
        let mut json = serde_json::to_vec(&Json(self)).map_err(|source| StreamError::Header {
            file: self.label.clone(),
            source,
        })?;
        json.resize(json.len().next_multiple_of(ALIGNMENT), b' ');
        let found_bytes = json.len() as u64;
        if found_bytes > MAX_HEADER_BYTES {
            return Err(SinkError::HeaderTooLong {
                file: self.label.clone(),
                found_bytes,
                limit_bytes: MAX_HEADER_BYTES,
            }
            .into());
        }
        Ok([found_bytes.to_le_bytes().as_slice(), &json].concat())
    }
}

/// That the entry's size is that of its type and shape.
fn check_size(file: &str, name: &str, entry: &TensorEntry) -> Result<(), StreamError> {
    let (file, tensor) = (file.to_owned(), shorten(name));
    if name == METADATA {
        return Err(SinkError::ReservedName { file, tensor }.into());
    }
    let Some(bits) = num_bits(&entry.tag, &entry.shape) else {
        let found = shorten(&entry.tag);
        return Err(StreamError::UnknownType {
            file,
            tensor,
            found,
        });
    };
    let shape = entry.shape.clone();
    match bits {
        None => Err(StreamError::ShapeOverflow {
            file,
            tensor,
            shape,
        }),
        Some(bits) if entry.num_bytes.checked_mul(8) != Some(bits as u64) => {
            Err(StreamError::TensorSize {
                file,
                tensor,
                tag: entry.tag.clone(),
                shape,
                found_bytes: entry.num_bytes,
                expected_bits: bits as u64,
            })
        }
        Some(_) => Ok(()),
    }
}

/// The layout as the header's JSON.
struct Json<'a>(&'a SafetensorsLayout);

#[derive(Serialize)]
struct RawTensor<'a> {
    dtype: &'a str,
    shape: &'a [usize],
    data_offsets: [u64; 2],
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.0.metadata.is_empty() {
            map.serialize_entry(METADATA, &self.0.metadata)?;
        }
        let mut begin = 0;
        for (name, entry) in &self.0.tensors {
            let end = begin + entry.num_bytes;
            let raw = RawTensor {
                dtype: &entry.tag,
                shape: &entry.shape,
                data_offsets: [begin, end],
            };
            map.serialize_entry(name, &raw)?;
            begin = end;
        }
        map.end()
    }
}

/// The data start at a multiple of this, as the format's own crate writes them.
const ALIGNMENT: usize = 8;
