//! An array of metadata values, kept as the bytes that files hold.
//!
//! A tokenizer's list has hundreds of thousands of texts that nobody here asks for: a view costs nothing, and
//! elements are made when they are looked at.

use std::fmt;

use bytes::Bytes;

use super::{GgufType, GgufValue, cursor::Cursor, read::read_value};

/// Metadata values of one type.
#[derive(Clone, PartialEq, Eq)]
pub struct GgufArray {
    element_type: GgufType,
    len: usize,
    bytes: Bytes,
}

impl GgufArray {
    /// An array of `elements`; `None` where one of them is not of the type `element_type`.
    #[must_use]
    pub fn new(element_type: GgufType, elements: &[GgufValue]) -> Option<Self> {
        let mut bytes = Vec::new();
        for element in elements {
            if element.value_type() != element_type {
                return None;
            }
            element.encode(&mut bytes);
        }
        Some(Self {
            element_type,
            len: elements.len(),
            bytes: bytes.into(),
        })
    }

    /// Bytes of a file that were found to be `len` elements.
    pub(super) fn of_checked(element_type: GgufType, len: usize, bytes: Bytes) -> Self {
        Self {
            element_type,
            len,
            bytes,
        }
    }

    /// Type of every element.
    #[must_use]
    pub fn element_type(&self) -> GgufType {
        self.element_type
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, made one by one.
    pub fn iter(&self) -> impl Iterator<Item = GgufValue> {
        let mut position = 0;
        (0..self.len).map_while(move |_| {
            let mut cursor = Cursor::at("", &self.bytes, position);
            // It was right when the file was opened: only who rewrites an open file sees fewer elements.
            let element = read_value(&mut cursor, self.element_type, "", 0).ok()?;
            position = cursor.position();
            Some(element)
        })
    }

    /// Bytes of all elements.
    pub(super) fn num_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.element_type.id().to_le_bytes());
        out.extend((self.len as u64).to_le_bytes());
        out.extend_from_slice(&self.bytes);
    }
}

/// Without the elements, which may be many.
impl fmt::Debug for GgufArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufArray")
            .field("element_type", &self.element_type)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
