//! `y = (x − mean) / sqrt(var + ε) · γ + β`: layer norm (Ba et al. 2016), computed in f32.
//!
//! A norm's scale counts as a weight of shape `[d_model, 1]`, so that a patch sees it like any other.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::{LayerNorm, LayerNormConfig},
    tensor::{DType, Device, Tensor},
};

use crate::{Error, LayerState, PatchedLayer, Traffic, dense, error::value_or_panic};

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
            d_model,
            epsilon,
            state: LayerState::default(),
            home,
        }
    }

    /// Takes a Burn layer over, sharing its parameters. Burn keeps its epsilon private, so it is given
    /// again here.
    #[must_use]
    pub fn from_burn(norm: LayerNorm, epsilon: f64) -> Self {
        let (d_model, home) = (norm.gamma.lazy_shape()[0], norm.gamma.lazy_device());
        let state = LayerState::default();
        Self {
            gamma: Some(norm.gamma),
            beta: norm.beta,
            d_model,
            epsilon,
            state,
            home,
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
        check_width(input.dims()[D - 1], self.weight_shape()[0])?;
        if let Some(gamma) = &self.gamma {
            check_device(&input.device(), &gamma.lazy_device(), &self.state)?;
        }
        let input = dense::cast(input, DType::F32);
        let centered = input.clone() - input.mean_dim(D - 1);
        let deviation = (centered.clone().square().mean_dim(D - 1) + self.epsilon).sqrt();
        let mut output = centered / deviation;
        if self.gamma.is_some() || !self.state.patches.is_idle() || self.state.merged.is_some() {
            let (gamma, beta) = effective(self, &output.device())?;
            output = output * gamma.unsqueeze();
            if let Some(beta) = beta {
                output = output + beta.unsqueeze();
            }
        }
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
}

impl PatchedLayer for PatchedLayerNorm {
    fn state(&self) -> &LayerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut LayerState {
        &mut self.state
    }

    fn weight_shape(&self) -> [usize; 2] {
        let scale = self.gamma.as_ref();
        [scale.map_or(self.d_model, |gamma| gamma.lazy_shape()[0]), 1]
    }

    fn has_bias(&self) -> bool {
        self.beta.is_some()
    }

    fn is_resident(&self) -> bool {
        true
    }

    fn base_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        let gamma = match &self.gamma {
            Some(gamma) => column(gamma, device, &self.state.traffic),
            None => Tensor::ones(self.weight_shape(), (device, DType::F32)),
        };
        let beta = self.beta.as_ref();
        let beta = beta.map(|beta| vector(beta, device, &self.state.traffic));
        Ok((gamma, beta))
    }

    fn device(&self) -> Device {
        self.home.clone()
    }

    fn base_dtype(&self) -> DType {
        self.gamma
            .as_ref()
            .map_or(DType::F32, |gamma| gamma.val().dtype())
    }

    fn bias_dtype(&self) -> DType {
        self.beta
            .as_ref()
            .map_or_else(|| self.base_dtype(), |beta| beta.val().dtype())
    }

    fn visit_base_bytes(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        for param in self.gamma.iter().chain(&self.beta) {
            visit(param.val().to_data().as_bytes());
        }
        Ok(())
    }
}

/// Scale and shift in f32 on `device`, with whatever is merged into or mounted on them.
pub(crate) fn effective(
    layer: &impl PatchedLayer,
    device: &Device,
) -> Result<(Tensor<1>, Option<Tensor<1>>), Error> {
    let (mut gamma, mut beta) = layer.effective_values(device)?;
    let delta = layer.patches().delta(device, layer.weight_shape(), || {
        Ok::<_, Error>(layer.base_values(device)?.0)
    })?;
    if let Some(weight) = delta.weight {
        gamma = gamma + weight;
    }
    if let Some(bias) = delta.bias {
        beta = Some(match beta {
            Some(beta) => beta + bias,
            None => bias,
        });
    }
    Ok((gamma.squeeze_dim(1), beta))
}

/// That the input's last axis is as wide as the norm.
pub(crate) fn check_width(found: usize, expected: usize) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::InputWidth { found, expected })
}

/// That the scale on the device `scale` may follow the input.
pub(crate) fn check_device(
    input: &Device,
    scale: &Device,
    state: &LayerState,
) -> Result<(), Error> {
    if scale == input || state.autocast || !state.patches.is_idle() {
        return Ok(());
    }
    Err(Error::AutocastOff {
        weight: format!("{scale:?}"),
        input: format!("{input:?}"),
    })
}

/// A vector `[d_model]` as a weight `[d_model, 1]` in f32 on `device`.
pub(crate) fn column(param: &Param<Tensor<1>>, device: &Device, traffic: &Traffic) -> Tensor<2> {
    vector(param, device, traffic).unsqueeze_dim(1)
}

fn vector(param: &Param<Tensor<1>>, device: &Device, traffic: &Traffic) -> Tensor<1> {
    dense::values(param.val(), device, traffic)
}
