//! Some rows of a patch, for the layer that holds only those rows of the weight.
//!
//! A checkpoint that keeps q, k and v apart gets, from a patch of the fused weight, its rows: `to_k`
//! takes `d..2d` of ΔW and Δb. A kind may cut itself (a low-rank one shares its `down`); the others
//! compute the whole residual and slice it.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{BaseAccess, BaseLayer, Patch, PatchError};

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

    fn check(&self, base: [usize; 2]) -> Result<(), PatchError> {
        if base[0] != self.rows.len() || self.rows.is_empty() {
            let (kind, patch) = (self.kind().into(), [self.rows.len(), base[1]]);
            return Err(PatchError::DoesNotFit { kind, patch, base });
        }
        self.whole_shape(base[1]).map(|_| ())
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let fan_in = base.shape[1];
        let whole = BaseLayer {
            shape: self.whole_shape(fan_in)?,
            weight: None,
        };
        let delta = self.patch.delta_weight(&whole)?;
        Ok(delta.map(|delta| delta.slice([self.rows.clone(), 0..fan_in])))
    }

    fn delta_bias(&self) -> Option<Tensor<1>> {
        self.patch
            .delta_bias()
            .map(|delta| delta.slice([self.rows.clone()]))
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        let num_rows = input.dims()[0];
        let output = self.patch.sidecar_linear(input)?;
        Some(output.slice([0..num_rows, self.rows.clone()]))
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
    /// Shape `[d_output, fan_in]` of the weight the uncut patch is for. A patch states it when it
    /// is asked about another shape; one that fits any number of rows gets the fewest.
    fn whole_shape(&self, fan_in: usize) -> Result<[usize; 2], PatchError> {
        if self.patch.base_access() == BaseAccess::Weight {
            let (kind, rows) = (self.kind().into(), self.rows.clone());
            return Err(PatchError::NeedsWholeBase { kind, rows });
        }
        let fewest = [self.rows.end, fan_in];
        match self.patch.check(fewest) {
            Ok(()) => Ok(fewest),
            Err(PatchError::DoesNotFit { patch, .. })
                if patch[0] >= self.rows.end && patch[1] == fan_in =>
            {
                self.patch.check(patch).map(|()| patch)
            }
            Err(error) => Err(error),
        }
    }
}
