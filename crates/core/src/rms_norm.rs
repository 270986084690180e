//! `y = x / sqrt(mean(x²) + ε) · γ`: root-mean-square norm (Zhang & Sennrich 2019), computed in f32.
//!
//! It has no shift of its own; a patch's bias residual is added all the same.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::{RmsNorm, RmsNormConfig},
    tensor::{DType, Device, Tensor},
};

use crate::{Error, LayerState, PatchedLayer, Traffic, dense, error::value_or_panic, layer_norm};

/// A drop-in for [`burn::nn::RmsNorm`] that takes patches on its scale, and a shift from them.
#[derive(Module, Debug)]
pub struct PatchedRmsNorm {
    /// Scale `[d_model]`.
    pub gamma: Param<Tensor<1>>,
    /// Added to the mean square.
    pub epsilon: f64,
    #[module(skip)]
    state: LayerState,
}

impl PatchedRmsNorm {
    /// A norm over a scale `[d_model]` that is in place.
    #[must_use]
    pub fn from_gamma(gamma: Tensor<1>, epsilon: f64, traffic: Arc<Traffic>) -> Self {
        Self {
            gamma: Param::from_tensor(gamma),
            epsilon,
            state: LayerState::with_traffic(traffic),
        }
    }

    /// Applies the norm over the last axis, `[..., d_model] -> [..., d_model]`.
    ///
    /// # Panics
    /// Where [`try_forward`](Self::try_forward) would answer an error.
    #[must_use]
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        value_or_panic(self.try_forward(input))
    }

    /// Applies the norm over the last axis, `[..., d_model] -> [..., d_model]`.
    ///
    /// # Errors
    /// [`Error::InputWidth`], [`Error::AutocastOff`] or [`Error::Patch`].
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, Error> {
        let dtype = input.dtype();
        layer_norm::check_width(input.dims()[D - 1], self.weight_shape()[0])?;
        layer_norm::check_device(&input.device(), &self.device(), &self.state)?;
        let (gamma, shift) = layer_norm::effective(self, &input.device())?;
        let input = dense::cast(input, DType::F32);
        let rms = (input.clone().square().mean_dim(D - 1) + self.epsilon).sqrt();
        let mut output = input / rms * gamma.unsqueeze();
        if let Some(shift) = shift {
            output = output + shift.unsqueeze();
        }
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
}

impl From<RmsNorm> for PatchedRmsNorm {
    /// Takes a Burn layer over, sharing its parameter.
    fn from(norm: RmsNorm) -> Self {
        Self {
            gamma: norm.gamma,
            epsilon: norm.epsilon,
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

    fn weight_shape(&self) -> [usize; 2] {
        [self.gamma.lazy_shape()[0], 1]
    }

    fn has_bias(&self) -> bool {
        false
    }

    fn is_resident(&self) -> bool {
        true
    }

    fn base_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        let gamma = layer_norm::column(&self.gamma, device, &self.state.traffic);
        Ok((gamma, None))
    }

    fn device(&self) -> Device {
        self.gamma.lazy_device()
    }

    fn base_dtype(&self) -> DType {
        self.gamma.val().dtype()
    }

    fn visit_base_bytes(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        visit(self.gamma.val().to_data().as_bytes());
        Ok(())
    }
}
