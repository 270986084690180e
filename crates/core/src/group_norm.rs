//! `y = (x − mean) / sqrt(var + ε) · γ + β` over groups of channels: group norm (Wu & He 2018), computed in f32.
//!
//! The input is `[batch, num_channels, …]` of any rank; mean and variance are those of one group of channels and
//! all positions. Scale and shift are one number a channel, and patched as a weight `[num_channels, 1]` and a
//! bias.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::GroupNorm,
    tensor::{DType, Device, Tensor},
};

use overglaze_patches::LayerShape;

use crate::{
    Error, LayerState, PatchedLayer, Traffic, WeightRef, dense, error::value_or_panic,
    scale_shift::ScaleShift,
};

/// A drop-in for [`burn::nn::GroupNorm`] that takes patches on its scale and shift. Both may be absent.
#[derive(Module, Debug)]
pub struct PatchedGroupNorm {
    /// Scale `[num_channels]`; `None` scales by one.
    pub gamma: Option<Param<Tensor<1>>>,
    /// Shift `[num_channels]`; `None` shifts by zero.
    pub beta: Option<Param<Tensor<1>>>,
    /// Groups the channels are normalized in.
    pub num_groups: usize,
    /// Channels of the input.
    pub num_channels: usize,
    /// Added to the variance.
    pub epsilon: f64,
    #[module(skip)]
    state: LayerState,
    #[module(skip)]
    /// `None` for a layer of Burn's without parameters, which is at home nowhere.
    home: Option<Device>,
}

impl PatchedGroupNorm {
    /// A norm of `[num_groups, num_channels]` without scale and shift.
    #[must_use]
    pub fn without_affine(
        [num_groups, num_channels]: [usize; 2],
        epsilon: f64,
        device: &Device,
        traffic: Arc<Traffic>,
    ) -> Self {
        Self {
            gamma: None,
            beta: None,
            num_groups,
            num_channels,
            epsilon,
            state: LayerState::with_traffic(traffic),
            home: Some(device.clone()),
        }
    }

    /// A norm with a scale `[num_channels]` and perhaps a shift `[num_channels]`.
    #[must_use]
    pub fn from_affine(
        gamma: Tensor<1>,
        beta: Option<Tensor<1>>,
        num_groups: usize,
        epsilon: f64,
    ) -> Self {
        let (num_channels, device) = (gamma.dims()[0], gamma.device());
        let shape = [num_groups, num_channels];
        Self {
            gamma: Some(Param::from_tensor(gamma)),
            beta: beta.map(Param::from_tensor),
            ..Self::without_affine(shape, epsilon, &device, Arc::default())
        }
    }

    /// Applies the norm, `[batch, num_channels, …] -> [batch, num_channels, …]`, in the input's dtype.
    ///
    /// # Panics
    /// Where [`try_forward`](Self::try_forward) would answer an error.
    #[must_use]
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        value_or_panic(self.try_forward(input))
    }

    /// Applies the norm, `[batch, num_channels, …] -> [batch, num_channels, …]`, in the input's dtype.
    ///
    /// # Errors
    /// [`Error::InputChannels`], [`Error::NormGroups`], [`Error::AutocastOff`] or [`Error::Patch`].
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, Error> {
        let (dims, dtype) = (input.dims(), input.dtype());
        self.check(&dims)?;
        self.params().check_device(&input.device())?;
        if dims.contains(&0) {
            return Ok(input);
        }
        let group_len = dims[1..].iter().product::<usize>() / self.num_groups;
        let groups = dense::cast(input, DType::F32).reshape([dims[0], self.num_groups, group_len]);
        let centered = groups.clone() - groups.mean_dim(2);
        let deviation = (centered.clone().square().mean_dim(2) + self.epsilon).sqrt();
        let output = (centered / deviation).reshape(dims);
        let output = self.params().apply(output, 1)?;
        Ok(dense::cast(output, dtype))
    }

    /// The Burn layer underneath, sharing its parameters.
    ///
    /// # Errors
    /// [`Error::StillMounted`] while patches are on the layer, [`Error::StillMerged`] while one is merged,
    /// [`Error::NotABurnLayer`] when there is a scale without a shift: Burn's layer has both or none.
    pub fn into_inner(self) -> Result<GroupNorm, Error> {
        self.state.check_bare()?;
        let affine = self.gamma.is_some();
        if affine != self.beta.is_some() {
            return Err(Error::NotABurnLayer);
        }
        Ok(GroupNorm {
            gamma: self.gamma,
            beta: self.beta,
            num_groups: self.num_groups,
            num_channels: self.num_channels,
            epsilon: self.epsilon,
            affine,
        })
    }

    fn params(&self) -> ScaleShift<'_> {
        ScaleShift {
            gamma: self.gamma.as_ref(),
            beta: self.beta.as_ref(),
            width: self.num_channels,
            state: &self.state,
        }
    }

    /// That the channels can be split into the groups.
    pub(crate) fn check_groups(&self) -> Result<(), Error> {
        let (num_channels, num_groups) = (self.params().width(), self.num_groups);
        if num_channels > 0 && num_groups > 0 && num_channels.is_multiple_of(num_groups) {
            return Ok(());
        }
        Err(Error::NormGroups {
            num_channels,
            num_groups,
        })
    }

    /// That an input of `dims` can be normalized.
    fn check(&self, dims: &[usize]) -> Result<(), Error> {
        self.check_groups()?;
        let expected = self.params().width();
        match dims.get(1).copied().unwrap_or(0) {
            found if found == expected => Ok(()),
            found => Err(Error::InputChannels { found, expected }),
        }
    }
}

impl From<GroupNorm> for PatchedGroupNorm {
    /// Takes a Burn layer over, sharing its parameters.
    fn from(norm: GroupNorm) -> Self {
        Self {
            home: norm.gamma.as_ref().map(Param::lazy_device),
            gamma: norm.gamma,
            beta: norm.beta,
            num_groups: norm.num_groups,
            num_channels: norm.num_channels,
            epsilon: norm.epsilon,
            state: LayerState::default(),
        }
    }
}

impl PatchedLayer for PatchedGroupNorm {
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
        self.home.clone().unwrap_or_default()
    }

    fn acquire_base(&self) -> Result<WeightRef, Error> {
        Ok(WeightRef::Owned(self.params().weights(&self.device())))
    }

    fn base_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        Ok(self.params().values(device))
    }

    fn visit_base_bytes(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.params().visit_bytes(visit);
        Ok(())
    }
}
