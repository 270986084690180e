//! `p + Σ strengthᵢ · Δpᵢ`: a bare parameter that a model adds or multiplies itself, such as a learned modulation.
//!
//! A patch sees it as a matrix `[first, rest]`: the first axis, and all others flattened. The sum is computed in
//! f32 and rounded once to the parameter's dtype.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor},
};
use overglaze_patches::LayerShape;

use crate::{
    Error, LayerLimits, LayerState, LayerWeights, PatchedLayer, Traffic, Weight, WeightRef, dense,
    error::value_or_panic, residual::BaseValues,
};

/// A parameter of `D` axes that takes patches.
#[derive(Module, Debug)]
pub struct PatchedParameter<const D: usize> {
    /// The parameter itself.
    pub base: Param<Tensor<D>>,
    #[module(skip)]
    state: LayerState,
}

impl<const D: usize> PatchedParameter<D> {
    /// A parameter with these values.
    #[must_use]
    pub fn from_tensor(base: Tensor<D>, traffic: Arc<Traffic>) -> Self {
        Self {
            base: Param::from_tensor(base),
            state: LayerState::with_traffic(traffic),
        }
    }

    /// The values with whatever is merged into or mounted on them.
    ///
    /// # Panics
    /// Where [`try_value`](Self::try_value) would answer an error.
    #[must_use]
    pub fn value(&self) -> Tensor<D> {
        value_or_panic(self.try_value())
    }

    /// The values with whatever is merged into or mounted on them, where the parameter is and in its dtype.
    ///
    /// # Errors
    /// [`Error::Patch`] when a patch cannot compute its residual.
    pub fn try_value(&self) -> Result<Tensor<D>, Error> {
        let base = self.base.val();
        if self.state.patches.is_idle() && self.state.merged.is_none() {
            return Ok(base);
        }
        let (device, dims, dtype) = (base.device(), base.dims(), base.dtype());
        let (mut value, _) = self.effective_values(&device)?;
        let shape = self.layer_shape();
        let delta = self.state.patches.delta(&device, &shape, |_| {
            let (weight, bias) = self.base_values(&device)?;
            Ok(BaseValues {
                weight: Some(weight),
                bias,
            })
        })?;
        if let Some(delta) = delta.weight {
            value = value + delta;
        }
        Ok(dense::cast(value.reshape(dims), dtype))
    }

    /// The parameter alone.
    ///
    /// # Errors
    /// [`Error::StillMounted`] while patches are on it, [`Error::StillMerged`] while one is merged.
    pub fn into_inner(self) -> Result<Param<Tensor<D>>, Error> {
        self.state.check_bare()?;
        Ok(self.base)
    }
}

impl<const D: usize> From<Param<Tensor<D>>> for PatchedParameter<D> {
    /// Takes a parameter over, sharing it.
    fn from(base: Param<Tensor<D>>) -> Self {
        Self {
            base,
            state: LayerState::default(),
        }
    }
}

impl<const D: usize> PatchedLayer for PatchedParameter<D> {
    fn state(&self) -> &LayerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut LayerState {
        &mut self.state
    }

    fn layer_shape(&self) -> LayerShape {
        LayerShape::parameter(&self.base.lazy_shape().dims::<D>())
    }

    fn limits(&self) -> LayerLimits {
        LayerLimits {
            takes_bias: false,
            ..LayerLimits::default()
        }
    }

    fn has_bias(&self) -> bool {
        false
    }

    fn device(&self) -> Device {
        self.base.lazy_device()
    }

    fn acquire_base(&self) -> Result<WeightRef, Error> {
        Ok(WeightRef::Owned(LayerWeights {
            weight: Weight::Dense(dense::flattened(self.base.val())),
            bias: None,
        }))
    }
}
