//! A kind in one variant: how its patch is made for a layer of any shape, and the layers it has a meaning on.

use std::{path::Path, sync::Arc};

use burn::tensor::DType;
use overglaze_patches::{
    AdapterConfig, LayerShape, Operator, Patch, RowPart, RowRanges, TensorGroup, registry,
};

use super::{keys::Keys, layers::TESTED};
use crate::numbers::flex;

/// A kind or a variant of one.
pub(crate) struct KindCase {
    pub(crate) name: &'static str,
    /// Whether it has a meaning on a layer.
    pub(crate) fits: fn(&LayerShape) -> bool,
    content: Content,
}

enum Content {
    /// Keys of a file, and the text of a configuration beside it.
    Keys(fn(&LayerShape) -> Keys, Option<&'static str>),
    /// A patch that no file makes.
    Made(fn(&LayerShape, DType) -> Arc<dyn Patch>),
}

impl KindCase {
    /// The patch for a layer of `shape`, its tensors kept in `dtype`.
    pub(crate) fn patch(&self, shape: &LayerShape, dtype: DType) -> Arc<dyn Patch> {
        match self.content {
            Content::Made(make) => make(shape, dtype),
            Content::Keys(..) => {
                let group = self.group(shape, dtype).expect("it is made of keys");
                let patch = registry::load(group, &flex());
                patch.unwrap_or_else(|error| panic!("{}, {shape}: {error}", self.name))
            }
        }
    }

    /// The keys for a layer of `shape`, where the patch is made of keys.
    pub(crate) fn group(&self, shape: &LayerShape, dtype: DType) -> Option<TensorGroup> {
        let Content::Keys(keys, config) = self.content else {
            return None;
        };
        let config = config.map(|text| {
            let config = AdapterConfig::from_json(Path::new("adapter_config.json"), text);
            config.expect("it is one").layer(TESTED)
        });
        Some(TensorGroup {
            config,
            ..group_of(keys(shape), dtype)
        })
    }
}

pub(crate) const fn keys(
    name: &'static str,
    fits: fn(&LayerShape) -> bool,
    keys: fn(&LayerShape) -> Keys,
) -> KindCase {
    KindCase {
        name,
        fits,
        content: Content::Keys(keys, None),
    }
}

pub(crate) const fn configured(
    name: &'static str,
    fits: fn(&LayerShape) -> bool,
    keys: fn(&LayerShape) -> Keys,
    config: &'static str,
) -> KindCase {
    KindCase {
        name,
        fits,
        content: Content::Keys(keys, Some(config)),
    }
}

pub(crate) const fn made(
    name: &'static str,
    fits: fn(&LayerShape) -> bool,
    make: fn(&LayerShape, DType) -> Arc<dyn Patch>,
) -> KindCase {
    KindCase {
        name,
        fits,
        content: Content::Made(make),
    }
}

fn group_of(keys: Keys, dtype: DType) -> TensorGroup {
    let tensors = keys.into_iter().map(|(key, data)| {
        let is_float = data.dtype().is_float() && key != "alpha";
        let data = if is_float {
            data.convert_dtype(dtype)
        } else {
            data
        };
        (String::from(key), data)
    });
    TensorGroup::new(TESTED, tensors.collect())
}

/// A part at quarters of the rows of `shape`.
pub(crate) fn row_part(
    shape: &LayerShape,
    quarters: [usize; 2],
    keys: fn(&LayerShape) -> Keys,
    dtype: DType,
) -> RowPart {
    let [start, end] = quarters.map(|quarter| quarter * shape.d_output() / 4);
    let group = group_of(keys(&shape.with_rows(end - start)), dtype);
    RowPart {
        rows: start..end,
        patch: registry::load(group, &flex()).expect("the keys are a kind's"),
    }
}

pub(crate) fn row_ranges(shape: &LayerShape, parts: Vec<RowPart>) -> Arc<dyn Patch> {
    let ranges = RowRanges::new(shape.d_output(), parts);
    Arc::new(ranges.expect("the parts do not meet"))
}

pub(crate) fn anywhere(_: &LayerShape) -> bool {
    true
}

pub(crate) fn is_matrix(shape: &LayerShape) -> bool {
    shape.is_matrix()
}

/// Linear layers and convolutions.
pub(crate) fn rotates(shape: &LayerShape) -> bool {
    is_affine(shape)
}

/// A matrix whose product a bias may be added to.
pub(crate) fn is_affine(shape: &LayerShape) -> bool {
    shape.is_matrix() && shape.operator() != Operator::Embedding
}

pub(crate) fn has_shift(shape: &LayerShape) -> bool {
    shape.operator() != Operator::Embedding
}

pub(crate) fn is_norm(shape: &LayerShape) -> bool {
    shape.operator() == Operator::Norm
}

pub(crate) fn is_in_one_group(shape: &LayerShape) -> bool {
    shape.is_matrix() && shape.groups() == 1
}

pub(crate) fn is_pointwise(shape: &LayerShape) -> bool {
    shape.is_matrix() && shape.kernel().iter().all(|size| *size == 1)
}

pub(crate) fn has_open_input(shape: &LayerShape) -> bool {
    shape.has_open_input()
}
