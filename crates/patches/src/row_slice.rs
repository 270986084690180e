//! Some rows of a patch, for the layer that holds only those rows of the weight.
//!
//! A checkpoint that keeps q, k and v apart gets, from a patch of the fused weight, its rows: `to_k`
//! takes `d..2d` of ΔW and Δb. A kind may cut itself (a low-rank one shares its `down`); the others
//! compute the whole residual and slice it.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{BaseAccess, BaseLayer, ConvInput, Feature, LayerShape, Patch, PatchError, Replaced};

/// The patch reduced to the output rows `rows` of its residual.
///
/// Where the kind cannot cut itself, the whole residual is computed and sliced. A kind that reads
/// the base's values is then refused by [`Patch::check`], as the rows of the layer are not enough.
#[must_use]
pub fn slice_rows(patch: &Arc<dyn Patch>, rows: Range<usize>) -> Arc<dyn Patch> {
    patch.slice_rows(rows.clone()).unwrap_or_else(|| {
        Arc::new(RowSlice {
            patch: patch.clone(),
            rows,
        })
    })
}

#[derive(Debug)]
struct RowSlice {
    patch: Arc<dyn Patch>,
    rows: Range<usize>,
}

impl Patch for RowSlice {
    fn kind(&self) -> &str {
        self.patch.kind()
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        if layer.d_output() != self.rows.len() || self.rows.is_empty() {
            return Err(PatchError::DoesNotFit {
                kind: self.kind().into(),
                patch: [self.rows.len(), layer.fan_in()],
                base: layer.dims().into(),
            });
        }
        self.whole_shape(layer).map(|_| ())
    }

    fn replaces(&self) -> Replaced {
        self.patch.replaces()
    }

    fn at_strength(&self, strength: f32) -> Option<Arc<dyn Patch>> {
        let patch = self.patch.at_strength(strength)?;
        Some(slice_rows(&patch, self.rows.clone()))
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let whole = self.whole_shape(base.shape)?;
        let delta = self.patch.delta_weight(&BaseLayer::of_shape(&whole))?;
        Ok(delta.map(|delta| delta.slice_dim(0, self.rows.clone())))
    }

    fn changes_bias(&self) -> bool {
        self.patch.changes_bias()
    }

    fn delta_bias(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        let whole = self.whole_shape(base.shape)?;
        let delta = self.patch.delta_bias(&BaseLayer::of_shape(&whole))?;
        Ok(delta.map(|delta| delta.slice([self.rows.clone()])))
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        let num_rows = input.dims()[0];
        let output = self.patch.sidecar_linear(input)?;
        Some(output.slice([0..num_rows, self.rows.clone()]))
    }

    fn sidecar_conv(&self, input: &ConvInput) -> Option<Feature> {
        Some(self.patch.sidecar_conv(input)?.channels(self.rows.clone()))
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        let inner = self.rows.start + rows.start..self.rows.start + rows.end;
        let patch = self.patch.clone();
        (inner.end <= self.rows.end)
            .then(|| Arc::new(Self { patch, rows: inner }) as Arc<dyn Patch>)
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        let patch = self.patch.to_device(device, dtype);
        Arc::new(Self {
            patch,
            rows: self.rows.clone(),
        })
    }

    fn num_bytes(&self) -> usize {
        self.patch.num_bytes()
    }
}

impl RowSlice {
    /// Shape of the layer the uncut patch is for. A patch states it when it is asked about another shape;
    /// one that fits any number of rows gets the fewest.
    fn whole_shape(&self, layer: &LayerShape) -> Result<LayerShape, PatchError> {
        if self.patch.base_access() == BaseAccess::Weight || self.patch.replaces().bias {
            let (kind, rows) = (self.kind().into(), self.rows.clone());
            return Err(PatchError::NeedsWholeBase { kind, rows });
        }
        let fewest = layer.with_rows(self.rows.end);
        match self.patch.check(&fewest) {
            Ok(()) => Ok(fewest),
            Err(PatchError::DoesNotFit { patch, .. })
                if patch[0] >= self.rows.end && patch[1] == layer.fan_in() =>
            {
                let whole = layer.with_rows(patch[0]);
                self.patch.check(&whole).map(|()| whole)
            }
            Err(error) => Err(error),
        }
    }
}
