//! A patch times a number, for parts of a whole whose other parts are not proportional to the strength.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseAccess, BaseLayer, ConvInput, Feature, LayerShape, LowRank, Patch, PatchError, Replaced,
};

/// `patch` at `strength`, as a patch at strength 1.
#[must_use]
pub fn at_strength(patch: &Arc<dyn Patch>, strength: f32) -> Arc<dyn Patch> {
    if strength == 1.0 {
        return Arc::clone(patch);
    }
    patch.at_strength(strength).unwrap_or_else(|| {
        Arc::new(Scaled {
            patch: Arc::clone(patch),
            strength,
        })
    })
}

/// A patch whose residual is proportional to the strength, at one strength.
#[derive(Debug)]
struct Scaled {
    patch: Arc<dyn Patch>,
    strength: f32,
}

impl Scaled {
    fn around(&self, patch: Arc<dyn Patch>) -> Arc<dyn Patch> {
        Arc::new(Self {
            patch,
            strength: self.strength,
        })
    }
}

impl Patch for Scaled {
    fn kind(&self) -> &str {
        self.patch.kind()
    }

    fn base_access(&self) -> BaseAccess {
        self.patch.base_access()
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        self.patch.check(layer)
    }

    fn replaces(&self) -> Replaced {
        self.patch.replaces()
    }

    fn d_input(&self, layer: &LayerShape) -> usize {
        self.patch.d_input(layer)
    }

    fn low_rank(&self) -> Option<LowRank> {
        let LowRank { up, down } = self.patch.low_rank()?;
        Some(LowRank {
            up: up.mul_scalar(self.strength),
            down,
        })
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let delta = self.patch.delta_weight(base)?;
        Ok(delta.map(|delta| delta.mul_scalar(self.strength)))
    }

    fn changes_bias(&self) -> bool {
        self.patch.changes_bias()
    }

    fn delta_bias(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        let delta = self.patch.delta_bias(base)?;
        Ok(delta.map(|delta| delta.mul_scalar(self.strength)))
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        let output = self.patch.sidecar_linear(input)?;
        Some(output.mul_scalar(self.strength))
    }

    fn sidecar_conv(&self, input: &ConvInput) -> Option<Feature> {
        let output = self.patch.sidecar_conv(input)?;
        Some(output.scaled(self.strength))
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        Some(self.around(self.patch.slice_rows(rows)?))
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        self.around(self.patch.to_device(device, dtype))
    }

    fn num_bytes(&self) -> usize {
        self.patch.num_bytes()
    }
}
