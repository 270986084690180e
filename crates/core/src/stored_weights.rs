//! What a source holds, weight by weight: a packed weight of several tensors is one entry of its logical shape.

use std::collections::{BTreeMap, BTreeSet};

use overglaze_quant::{FoundPart, FoundWeight, Part, QuantFormat, QuantizedTensor};
use overglaze_stream::{TensorEntry, WeightSource};

use crate::{Error, source_tensor, tensor_spec::TensorSpec};

/// A weight of a source.
#[derive(Clone, Debug)]
pub struct StoredWeight {
    /// How it is packed; `None` where no format takes the tensor, as with names or counters.
    pub format: Option<&'static dyn QuantFormat>,
    /// The container's word for the type of the packed values.
    pub tag: String,
    /// Logical shape: the first axis is `d_output`; that of the tensor where no format takes it.
    pub shape: Vec<usize>,
    /// Bytes of all its tensors.
    pub num_bytes: u64,
    /// Names of the tensors it consists of, its own first.
    pub tensors: Vec<String>,
}

/// Every weight of `source` under the name of its main tensor. Tensors that belong to one have no entry of their own.
#[must_use]
pub fn stored_weights(source: &dyn WeightSource) -> BTreeMap<String, StoredWeight> {
    let mut weights: BTreeMap<_, _> = source
        .entries()
        .iter()
        .map(|(name, entry)| (name.clone(), stored_weight(source, name, entry)))
        .collect();
    let belonging: BTreeSet<String> = weights
        .values()
        .flat_map(|weight| weight.tensors.iter().skip(1).cloned())
        .collect();
    weights.retain(|name, _| !belonging.contains(name));
    weights
}

/// The weight `name` of `source` as a matrix over its stored bytes, and its logical shape: the first axis is
/// `d_output`, a vector or a single number one row.
///
/// # Errors
/// [`Error::MissingTensor`], [`Error::WrongShape`], [`Error::Quant`] or [`Error::Stream`].
pub fn packed_weight(
    source: &dyn WeightSource,
    name: &str,
) -> Result<(QuantizedTensor, Vec<usize>), Error> {
    let found = source_tensor::found(source, name)?;
    let shape = found.shape.clone();
    let matrix = matrix_shape(&shape).ok_or_else(|| {
        let expected = "a size that memory can have".to_owned();
        source_tensor::wrong_shape(source, name, &shape, expected)
    })?;
    let spec = TensorSpec::new(source, name, found, matrix)?;
    Ok((spec.packed(spec.read(source)?)?, shape))
}

/// `[d_output, d_input]` of a logical shape.
fn matrix_shape(shape: &[usize]) -> Option<[usize; 2]> {
    let product = |axes: &[usize]| {
        let mut axes = axes.iter();
        axes.try_fold(1_usize, |product, axis| product.checked_mul(*axis))
    };
    match shape {
        [] | [_] => Some([1, product(shape)?]),
        [d_output, others @ ..] => Some([*d_output, product(others)?]),
    }
}

fn stored_weight(source: &dyn WeightSource, name: &str, entry: &TensorEntry) -> StoredWeight {
    let tag = entry.tag.clone();
    let Ok(found) = source_tensor::found(source, name) else {
        // Whoever needs it is told why; here it is only listed.
        return StoredWeight {
            format: None,
            tag,
            shape: entry.shape.clone(),
            num_bytes: entry.num_bytes,
            tensors: vec![name.into()],
        };
    };
    let tensors = tensors_of(name, &found);
    let sizes = tensors.iter().filter_map(|name| source.entries().get(name));
    StoredWeight {
        format: Some(found.format),
        tag,
        shape: found.shape,
        num_bytes: sizes.fold(0, |sum, entry| sum.saturating_add(entry.num_bytes)),
        tensors,
    }
}

fn tensors_of(name: &str, found: &FoundWeight) -> Vec<String> {
    let parts = found.parts.iter().filter_map(|part| match part {
        FoundPart::InFile { tensor, .. } => Some(tensor),
        FoundPart::Known(Part { .. }) => None,
    });
    let others = parts
        .chain(&found.described_by)
        .filter(|tensor| *tensor != name);
    [name.to_owned()]
        .into_iter()
        .chain(others.cloned())
        .collect()
}
