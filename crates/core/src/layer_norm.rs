//! `y = (x − mean) / sqrt(var + ε) · γ + β`: layer norm (Ba et al. 2016), computed in f32.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::{LayerNorm, LayerNormConfig},
    tensor::{DType, Device, Tensor},
};

use overglaze_patches::LayerShape;

use crate::{
    Error, LayerState, PatchedLayer, Traffic, WeightRef, dense,
    error::value_or_panic,
    scale_shift::{ScaleShift, check_width},
};

/// A drop-in for [`burn::nn::LayerNorm`] that takes patches on its scale and shift. Both may be absent.
#[derive(Module, Debug)]
pub struct PatchedLayerNorm {
    /// Scale `[d_model]`; `None` scales by one.
    pub gamma: Option<Param<Tensor<1>>>,
    /// Shift `[d_model]`; `None` shifts by zero.
    pub beta: Option<Param<Tensor<1>>>,
    /// Width of the normalized axis.
    pub d_model: usize,
    /// Added to the variance.
    pub epsilon: f64,
    #[module(skip)]
    state: LayerState,
    #[module(skip)]
    home: Device,
}

impl PatchedLayerNorm {
    /// A norm without scale and shift.
    #[must_use]
    pub fn without_affine(
        d_model: usize,
        epsilon: f64,
        device: &Device,
        traffic: Arc<Traffic>,
    ) -> Self {
        let state = LayerState::with_traffic(traffic);
        Self {
            gamma: None,
            beta: None,
            d_model,
            epsilon,
            state,
            home: device.clone(),
        }
    }

    /// A norm with a scale `[d_model]` and perhaps a shift `[d_model]`.
    #[must_use]
    pub fn from_affine(gamma: Tensor<1>, beta: Option<Tensor<1>>, epsilon: f64) -> Self {
        let ([d_model], home) = (gamma.dims(), gamma.device());
        Self {
            gamma: Some(Param::from_tensor(gamma)),
            beta: beta.map(Param::from_tensor),
            ..Self::without_affine(d_model, epsilon, &home, Arc::default())
        }
    }

    /// Takes a Burn layer over, sharing its parameters. Burn keeps its epsilon private, so it is given
    /// again here.
    #[must_use]
    pub fn from_burn(norm: LayerNorm, epsilon: f64) -> Self {
        let (d_model, home) = (norm.gamma.lazy_shape()[0], norm.gamma.lazy_device());
        Self {
            gamma: Some(norm.gamma),
            beta: norm.beta,
            ..Self::without_affine(d_model, epsilon, &home, Arc::default())
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
        check_width(input.dims()[D - 1], self.params().width())?;
        self.params().check_device(&input.device())?;
        if input.dims().contains(&0) {
            return Ok(input);
        }
        let input = dense::cast(input, DType::F32);
        let centered = input.clone() - input.mean_dim(D - 1);
        let deviation = (centered.clone().square().mean_dim(D - 1) + self.epsilon).sqrt();
        let output = self.params().apply(centered / deviation, D - 1)?;
        Ok(dense::cast(output, dtype))
    }

    /// The Burn layer underneath, sharing its parameters.
    ///
    /// # Errors
    /// [`Error::StillMounted`] while patches are on the layer, [`Error::StillMerged`] while one is merged,
    /// [`Error::NotABurnLayer`] when there is no scale: Burn's layer always has one.
    pub fn into_inner(self) -> Result<LayerNorm, Error> {
        self.state.check_bare()?;
        let gamma = self.gamma.ok_or(Error::NotABurnLayer)?;
        let config = LayerNormConfig::new(self.d_model)
            .with_epsilon(self.epsilon)
            .with_bias(false);
        let mut norm = config.init(&gamma.lazy_device());
        norm.gamma = gamma;
        norm.beta = self.beta;
        Ok(norm)
    }

    fn params(&self) -> ScaleShift<'_> {
        ScaleShift {
            gamma: self.gamma.as_ref(),
            beta: self.beta.as_ref(),
            width: self.d_model,
            state: &self.state,
        }
    }
}

impl PatchedLayer for PatchedLayerNorm {
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
        self.beta.is_some()
    }

    fn device(&self) -> Device {
        self.home.clone()
    }

    fn acquire_base(&self) -> Result<WeightRef, Error> {
        Ok(WeightRef::Owned(self.params().weights(&self.home)))
    }

    fn base_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        Ok(self.params().values(device))
    }

    fn visit_base_bytes(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.params().visit_bytes(visit);
        Ok(())
    }
}
