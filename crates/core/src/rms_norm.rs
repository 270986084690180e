//! `y = x / sqrt(mean(x²) + ε) · γ`: root-mean-square norm (Zhang & Sennrich 2019), computed in f32.
//!
//! It has no shift of its own; a patch's bias residual is added all the same.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::{RmsNorm, RmsNormConfig},
    tensor::{DType, Device, Tensor},
};

use overglaze_patches::LayerShape;

use crate::{
    Error, LayerState, PatchedLayer, Traffic, WeightRef, dense,
    error::value_or_panic,
    scale_shift::{ScaleShift, check_width},
};

/// A drop-in for [`burn::nn::RmsNorm`] that takes patches on its scale, and a shift from them.
#[derive(Module, Debug)]
pub struct PatchedRmsNorm {
    /// Scale `[d_model]`.
    pub gamma: Param<Tensor<1>>,
    /// Added to the mean square.
    pub epsilon: f64,
    #[module(skip)]
    rounding: NormRounding,
    #[module(skip)]
    state: LayerState,
}

/// The dtype a root-mean-square norm rounds its output to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormRounding {
    /// The input's, as in Black Forest Labs' FLUX code and in Burn.
    #[default]
    Input,
    /// The scale's, as in diffusers.
    Scale,
}

impl PatchedRmsNorm {
    /// A norm over a scale `[d_model]` that is in place.
    #[must_use]
    pub fn from_gamma(gamma: Tensor<1>, epsilon: f64, traffic: Arc<Traffic>) -> Self {
        Self {
            gamma: Param::from_tensor(gamma),
            epsilon,
            rounding: NormRounding::Input,
            state: LayerState::with_traffic(traffic),
        }
    }

    /// The same norm, whose output is rounded to another dtype; [`NormRounding::Input`] is the default.
    #[must_use]
    pub fn with_rounding(mut self, rounding: NormRounding) -> Self {
        self.rounding = rounding;
        self
    }

    /// Applies the norm over the last axis, `[..., d_model] -> [..., d_model]`, in the dtype of
    /// its [`NormRounding`].
    ///
    /// # Panics
    /// Where [`try_forward`](Self::try_forward) would answer an error.
    #[must_use]
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        value_or_panic(self.try_forward(input))
    }

    /// Applies the norm over the last axis, `[..., d_model] -> [..., d_model]`, in the dtype of
    /// its [`NormRounding`].
    ///
    /// # Errors
    /// [`Error::InputWidth`], [`Error::AutocastOff`] or [`Error::Patch`].
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, Error> {
        let params = self.params();
        check_width(input.dims()[D - 1], params.width())?;
        params.check_device(&input.device())?;
        let dtype = self.output_dtype(&input);
        if input.dims().contains(&0) {
            return Ok(dense::cast(input, dtype));
        }
        let input = dense::cast(input, DType::F32);
        let rms = (input.clone().square().mean_dim(D - 1) + self.epsilon).sqrt();
        let output = params.apply(input / rms, D - 1)?;
        Ok(dense::cast(output, dtype))
    }

    /// The Burn layer underneath, sharing its parameter.
    ///
    /// # Errors
    /// [`Error::StillMounted`] while patches are on the layer, [`Error::StillMerged`] while one is merged.
    pub fn into_inner(self) -> Result<RmsNorm, Error> {
        self.state.check_bare()?;
        let config = RmsNormConfig::new(self.weight_shape()[0]).with_epsilon(self.epsilon);
        let mut norm = config.init(&self.gamma.lazy_device());
        norm.gamma = self.gamma;
        Ok(norm)
    }

    fn output_dtype<const D: usize>(&self, input: &Tensor<D>) -> DType {
        match self.rounding {
            NormRounding::Input => input.dtype(),
            NormRounding::Scale => {
                let dtype = self.gamma.val().dtype();
                let is_there = input.device().supports_dtype(dtype);
                if is_there { dtype } else { DType::F32 }
            }
        }
    }

    fn params(&self) -> ScaleShift<'_> {
        ScaleShift {
            gamma: Some(&self.gamma),
            beta: None,
            width: 0,
            state: &self.state,
        }
    }
}

impl From<RmsNorm> for PatchedRmsNorm {
    /// Takes a Burn layer over, sharing its parameter.
    fn from(norm: RmsNorm) -> Self {
        Self {
            gamma: norm.gamma,
            epsilon: norm.epsilon,
            rounding: NormRounding::Input,
            state: LayerState::default(),
        }
    }
}

impl PatchedLayer for PatchedRmsNorm {
    fn state(&self) -> &LayerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut LayerState {
        &mut self.state
    }

    fn layer_shape(&self) -> LayerShape {
        self.params().shape()
    }

    fn has_bias(&self) -> bool {
        false
    }

    fn device(&self) -> Device {
        self.gamma.lazy_device()
    }

    fn acquire_base(&self) -> Result<WeightRef, Error> {
        Ok(WeightRef::Owned(self.params().weights(&self.device())))
    }
}
