//! From a view into a storage to the bytes of a tensor, row-major.
//!
//! ```text
//! element [i, j, …] of a tensor = element offset + i · strides[0] + j · strides[1] + … of its storage
//! ```
//! A contiguous tensor stays a view. Another is copied, and all of them together may take [`EXPANSION`] times the
//! file: a stride of 0 repeats an element as often as a shape says.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    super::header::shorten,
    PickleError,
    globals::ElementType,
    values::{Storage, Tensor, Value, Values},
};

/// What tied and expanded tensors may take in sizes of the file.
const EXPANSION: u64 = 8;

/// Storages by key.
pub(super) type Storages = BTreeMap<String, Bytes>;

/// Takes tensors out of the storages of a file.
#[derive(Debug)]
pub(super) struct Reader<'r> {
    file: &'r str,
    storages: &'r Storages,
    limit_bytes: u64,
    taken_bytes: u64,
}

/// A tensor's bytes, and what they are.
#[derive(Debug)]
pub(super) struct Dense {
    pub(super) tag: &'static str,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Bytes,
}

impl<'r> Reader<'r> {
    pub(super) fn new(file: &'r str, file_bytes: usize, storages: &'r Storages) -> Self {
        Self {
            file,
            storages,
            limit_bytes: EXPANSION * file_bytes as u64,
            taken_bytes: 0,
        }
    }

    /// `None` where sizes or strides are no list of sizes.
    pub(super) fn read(
        &mut self,
        name: &str,
        values: &Values<'_>,
        tensor: &Tensor,
    ) -> Result<Option<Dense>, PickleError> {
        let Value::Storage(storage) = values.at(tensor.storage) else {
            return Ok(None);
        };
        let Some(shape) = values.sizes(tensor.shape) else {
            return Ok(None);
        };
        let Some(strides) = values.sizes(tensor.strides) else {
            return Ok(None);
        };
        if shape.len() != strides.len() {
            return Ok(None);
        }
        let element = tensor.element;
        let view = View {
            offset: tensor.offset,
            shape,
            strides,
        };
        let storage = self.storage(storage, element)?;
        let bytes = self.dense(name, &view, &storage, element)?;
        Ok(Some(Dense {
            tag: element.tag,
            shape: view.shape,
            bytes,
        }))
    }

    fn storage(&self, storage: &Storage<'_>, element: ElementType) -> Result<Bytes, PickleError> {
        let found = self.storages.get(storage.key);
        let bytes = found.ok_or_else(|| PickleError::MissingStorage {
            file: self.file.to_owned(),
            key: shorten(storage.key),
        })?;
        let element_bytes = storage.element.map_or(1, |element| element.num_bytes);
        let expected_bytes = (storage.num_elements as u64).saturating_mul(element_bytes as u64);
        if bytes.len() as u64 != expected_bytes {
            return Err(PickleError::StorageSize {
                file: self.file.to_owned(),
                key: shorten(storage.key),
                found_bytes: bytes.len() as u64,
                expected_bytes,
            });
        }
        // What is left over at the end is no element.
        Ok(bytes.slice(..bytes.len() - bytes.len() % element.num_bytes))
    }

    fn dense(
        &mut self,
        name: &str,
        view: &View,
        storage: &Bytes,
        element: ElementType,
    ) -> Result<Bytes, PickleError> {
        let available = storage.len() / element.num_bytes;
        if view.end().is_none_or(|end| end > available) {
            return Err(PickleError::OutOfStorage {
                file: self.file.to_owned(),
                tensor: shorten(name),
                shape: view.shape.clone(),
                strides: view.strides.clone(),
                offset: view.offset,
                available,
            });
        }
        let num_bytes = self.charge(name, view, element)?;
        if num_bytes == 0 {
            return Ok(Bytes::new());
        }
        let begin = view.offset * element.num_bytes;
        if view.is_contiguous() {
            return Ok(storage.slice(begin..begin + num_bytes));
        }
        let mut copy = Vec::with_capacity(num_bytes);
        gather(
            storage,
            begin,
            &view.dimensions(element.num_bytes),
            element.num_bytes,
            &mut copy,
        );
        Ok(copy.into())
    }

    fn charge(
        &mut self,
        name: &str,
        view: &View,
        element: ElementType,
    ) -> Result<usize, PickleError> {
        let num_bytes = view
            .num_elements()
            .and_then(|num| num.checked_mul(element.num_bytes));
        let taken = num_bytes.and_then(|num_bytes| self.taken_bytes.checked_add(num_bytes as u64));
        match (num_bytes, taken) {
            (Some(num_bytes), Some(taken)) if taken <= self.limit_bytes => {
                self.taken_bytes = taken;
                Ok(num_bytes)
            }
            _ => Err(PickleError::Expanded {
                file: self.file.to_owned(),
                tensor: shorten(name),
                limit_bytes: self.limit_bytes,
                factor: EXPANSION,
            }),
        }
    }
}

/// In elements.
struct View {
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl View {
    fn num_elements(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape
            .iter()
            .try_fold(1_usize, |num, dim| num.checked_mul(*dim))
    }

    /// One after the last element; 0 where there is none.
    fn end(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let begin = self.offset.checked_add(1)?;
        self.shape
            .iter()
            .zip(&self.strides)
            .try_fold(begin, |end, (dim, stride)| {
                end.checked_add((dim - 1).checked_mul(*stride)?)
            })
    }

    /// The stride of a dimension of one element says nothing.
    fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.shape
            .iter()
            .zip(&self.strides)
            .rev()
            .all(|(dim, stride)| {
                let fits = *dim == 1 || *stride == expected;
                expected *= dim;
                fits
            })
    }

    /// Length and stride in bytes of each dimension of more than one element.
    fn dimensions(&self, element_bytes: usize) -> Vec<(usize, usize)> {
        let dimensions = self.shape.iter().zip(&self.strides);
        dimensions
            .filter(|(dim, _)| **dim > 1)
            .map(|(dim, stride)| (*dim, stride * element_bytes))
            .collect()
    }
}

fn gather(
    storage: &[u8],
    begin: usize,
    dimensions: &[(usize, usize)],
    element_bytes: usize,
    copy: &mut Vec<u8>,
) {
    match dimensions {
        [] => copy.extend_from_slice(&storage[begin..begin + element_bytes]),
        [(dim, stride)] if *stride == element_bytes => {
            copy.extend_from_slice(&storage[begin..begin + dim * stride]);
        }
        [(dim, stride), inner @ ..] => {
            for index in 0..*dim {
                gather(storage, begin + index * stride, inner, element_bytes, copy);
            }
        }
    }
}
