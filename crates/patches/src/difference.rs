//! Differences to be added to a layer's parameters as they stand in a file.
//!
//! `ΔW = weight`, `Δb = bias`; kept in the file's dtype.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseLayer, LayerShape, Operator, Patch, PatchError, TensorGroup,
    axes::{check_bias, check_weight},
    patch::{moved, tensor_bytes, wide},
    values::Values,
};

/// A difference of the weight, of the bias, or of both.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    kind: &'static str,
    is_for_norms: bool,
    weight: Option<Values>,
    /// `[d_output]`.
    bias: Option<Tensor<1>>,
}

impl Difference {
    /// Removes the differences under the keys `weight` and `bias` from `group`, as far as they are there.
    ///
    /// # Errors
    /// As [`TensorGroup::take`], or [`PatchError::Inconsistent`].
    pub(crate) fn take(
        kind: &'static str,
        group: &mut TensorGroup,
        [weight, bias]: [&str; 2],
        device: &Device,
    ) -> Result<Self, PatchError> {
        let weight = match group.has(weight) {
            true => Some(Values::take(group, weight, device)?),
            false => None,
        };
        let bias = match group.has(bias) {
            true => Some(group.take(bias, device)?),
            false => None,
        };
        Ok(Self {
            kind,
            is_for_norms: false,
            weight,
            bias,
        })
    }

    /// The same, refused by every layer but norms.
    pub(crate) fn for_norms(self) -> Self {
        Self {
            is_for_norms: true,
            ..self
        }
    }
}

impl Patch for Difference {
    fn kind(&self) -> &str {
        self.kind
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        if self.is_for_norms && layer.operator() != Operator::Norm {
            return Err(PatchError::NoMeaning {
                kind: self.kind.into(),
                operator: layer.operator(),
                why: "it changes the scale and the shift of a norm".into(),
            });
        }
        if let Some(weight) = &self.weight {
            check_weight(self.kind, weight.dims(), layer)?;
        }
        match &self.bias {
            Some(bias) => check_bias(self.kind, bias.dims()[0], layer),
            None => Ok(()),
        }
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let weight = self.weight.as_ref();
        Ok(weight.map(|weight| weight.of_shape(base.shape.matrix())))
    }

    fn changes_bias(&self) -> bool {
        self.bias.is_some()
    }

    fn delta_bias(&self, _base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        Ok(self.bias.as_ref().map(wide))
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        let weight = match &self.weight {
            Some(weight) => Some(weight.rows(rows.clone())?),
            None => None,
        };
        let bias = self.bias.clone();
        if rows.is_empty() || bias.as_ref().is_some_and(|bias| rows.end > bias.dims()[0]) {
            return None;
        }
        Some(Arc::new(Self {
            weight,
            bias: bias.map(|bias| bias.slice([rows])),
            ..self.clone()
        }))
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            weight: self
                .weight
                .as_ref()
                .map(|weight| weight.moved(device, dtype)),
            bias: self.bias.as_ref().map(|bias| moved(bias, device, dtype)),
            ..self.clone()
        })
    }

    fn num_bytes(&self) -> usize {
        let weight = self.weight.as_ref().map_or(0, Values::num_bytes);
        weight + self.bias.as_ref().map_or(0, tensor_bytes)
    }
}
