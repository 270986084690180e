//! A sparse residual as LyCORIS writes it: the triple `bias_indices`, `bias_values`, `bias_size`.
//!
//! Coordinate form: `bias_indices [dimensions, n]` (signed integers), `bias_values [n]`, `bias_size
//! [dimensions]`. Values at one coordinate add up. It is kept sparse: the dense form may be far
//! larger than the file.

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};

use crate::{PatchError, TensorGroup, group::checked_product};

/// Values at flat positions of a dense tensor.
#[derive(Clone, Debug)]
pub(crate) struct SparseResidual {
    size: Vec<usize>,
    /// Row-major positions, each below the product of `size`.
    positions: Vec<usize>,
    values: Vec<f32>,
}

impl SparseResidual {
    /// Removes the triple from `group`; `None` when none of its keys is there.
    ///
    /// # Errors
    /// [`PatchError::MissingTensor`] when only some keys are there, [`PatchError::NotFinite`], or
    /// [`PatchError::Inconsistent`] when they contradict each other.
    pub(crate) fn take(group: &mut TensorGroup) -> Result<Option<Self>, PatchError> {
        if !KEYS.iter().any(|key| group.tensors.contains_key(*key)) {
            return Ok(None);
        }
        let [indices, values, size] = KEYS.map(|key| group.take_data(key));
        let (indices, values, size) = (indices?, values?, size?);
        group.check_finite(VALUES, &values)?;
        parse(&indices, &values, &size)
            .map(Some)
            .map_err(|why| PatchError::Inconsistent {
                target: group.target.clone(),
                why,
            })
    }

    /// Shape of the dense form.
    pub(crate) fn size(&self) -> &[usize] {
        &self.size
    }

    /// The same with every value times `factor`.
    pub(crate) fn scaled(mut self, factor: f32) -> Self {
        for value in &mut self.values {
            *value *= factor;
        }
        self
    }

    /// The rows `rows` of the first dimension alone.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Self {
        let row_elements: usize = self.size.iter().skip(1).product();
        let range = rows.start * row_elements..rows.end * row_elements;
        let pairs = self.positions.iter().zip(&self.values);
        let (positions, values) = pairs
            .filter(|(position, _)| range.contains(position))
            .map(|(position, value)| (position - range.start, *value))
            .unzip();
        let mut size = self.size.clone();
        if let Some(first) = size.first_mut() {
            *first = rows.len();
        }
        Self {
            size,
            positions,
            values,
        }
    }

    /// The dense form, f32, under a `shape` of as many elements.
    pub(crate) fn to_dense(&self, shape: [usize; 2], device: &Device) -> Tensor<2> {
        let mut dense = vec![0.0_f32; shape.iter().product()];
        for (position, value) in self.positions.iter().zip(&self.values) {
            dense[*position] += value;
        }
        Tensor::from_data(TensorData::new(dense, shape), device)
    }

    pub(crate) fn num_bytes(&self) -> usize {
        size_of_val(self.positions.as_slice()) + size_of_val(self.values.as_slice())
    }
}

fn parse(
    indices: &TensorData,
    values: &TensorData,
    size: &TensorData,
) -> Result<SparseResidual, String> {
    let size = integers(SIZE, size)?;
    // Beside a 0, the other sizes may overflow wherever they are multiplied without it.
    let is_size = !size.contains(&0) && checked_product(&size).is_some();
    if size.is_empty() || size.len() > MAX_DIMENSIONS || !is_size {
        return Err(format!(
            "`{SIZE}` is {size:?}, expected 1 to {MAX_DIMENSIONS} sizes above 0 of a tensor; is the file damaged?"
        ));
    }
    let num_values = values.num_elements();
    let expected = [size.len(), num_values];
    if **indices.shape() != expected || values.rank() != 1 || !values.dtype().is_float() {
        let (indices, values) = (indices.shape().to_vec(), values.shape().to_vec());
        return Err(format!(
            "`{INDICES}` has shape {indices:?}, expected {expected:?} beside `{VALUES}` of shape {values:?}"
        ));
    }
    let indices = integers(INDICES, indices)?;
    let positions = (0..num_values)
        .map(|value_index| position(&indices, value_index, num_values, &size))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| format!("`{INDICES}` points outside of the size {size:?}"))?;
    Ok(SparseResidual {
        size,
        positions,
        values: values.iter().collect(),
    })
}

/// Row-major position of the value at column `value_index` of `indices [dimensions, num_values]`.
fn position(
    indices: &[usize],
    value_index: usize,
    num_values: usize,
    size: &[usize],
) -> Option<usize> {
    size.iter()
        .enumerate()
        .try_fold(0, |position, (dimension, size)| {
            let index = indices[dimension * num_values + value_index];
            (index < *size).then(|| position * size + index)
        })
}

/// The numbers of a tensor of sizes or indices; in words what is wrong with it.
pub(crate) fn integers(key: &str, data: &TensorData) -> Result<Vec<usize>, String> {
    if !data.dtype().is_int() {
        let found = data.dtype().name();
        return Err(format!(
            "`{key}` has dtype {found}, expected a signed integer dtype"
        ));
    }
    data.iter::<i64>()
        .map(usize::try_from)
        .collect::<Result<_, _>>()
        .map_err(|_| format!("`{key}` holds a negative number"))
}

pub(crate) const INDICES: &str = "bias_indices";
pub(crate) const VALUES: &str = "bias_values";
pub(crate) const SIZE: &str = "bias_size";
pub(crate) const KEYS: [&str; 3] = [INDICES, VALUES, SIZE];
/// More than any weight has; keeps the arithmetic per value short.
const MAX_DIMENSIONS: usize = 8;
