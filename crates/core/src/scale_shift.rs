//! Scale and shift of a norm, `y = x̂ · γ + β`, with what is merged into or mounted on them.
//!
//! A scale counts as a weight of shape `[width, 1]`, so that a patch sees it like any other; a missing scale
//! counts as ones. Both are small, always in place, and computed with in f32.

use burn::{
    module::Param,
    tensor::{DType, Device, Tensor},
};
use overglaze_patches::LayerShape;

use crate::{Error, LayerState, LayerWeights, Weight, residual::BaseValues};

/// A view of a norm's parameters.
pub(crate) struct ScaleShift<'a> {
    /// Scale `[width]`.
    pub(crate) gamma: Option<&'a Param<Tensor<1>>>,
    /// Shift `[width]`.
    pub(crate) beta: Option<&'a Param<Tensor<1>>>,
    /// Features or channels, where there is no scale to tell.
    pub(crate) width: usize,
    pub(crate) state: &'a LayerState,
}

impl ScaleShift<'_> {
    pub(crate) fn shape(&self) -> LayerShape {
        LayerShape::norm(self.width())
    }

    pub(crate) fn width(&self) -> usize {
        self.gamma.map_or(self.width, |gamma| gamma.lazy_shape()[0])
    }

    /// That the scale may follow an input on `device`.
    pub(crate) fn check_device(&self, device: &Device) -> Result<(), Error> {
        let state = self.state;
        let Some(home) = self.gamma.map(Param::lazy_device) else {
            return Ok(());
        };
        if home == *device || state.autocast || !state.patches.is_idle() {
            return Ok(());
        }
        Err(Error::AutocastOff {
            weight: format!("{home:?}"),
            input: format!("{device:?}"),
        })
    }

    /// `normalized · γ + β` along `axis`, all in f32.
    pub(crate) fn apply<const D: usize>(
        &self,
        normalized: Tensor<D>,
        axis: usize,
    ) -> Result<Tensor<D>, Error> {
        let is_bare = self.state.patches.is_idle() && self.state.merged.is_none();
        if self.gamma.is_none() && self.beta.is_none() && is_bare {
            return Ok(normalized);
        }
        let (scale, shift) = self.effective(&normalized.device())?;
        let mut dims = [1; D];
        dims[axis] = self.width();
        let output = normalized * scale.reshape(dims);
        Ok(match shift {
            Some(shift) => output + shift.reshape(dims),
            None => output,
        })
    }

    /// The base's scale `[width, 1]`, ones on `device` where there is none, and shift `[width]`.
    pub(crate) fn weights(&self, device: &Device) -> LayerWeights {
        let scale = match self.gamma {
            Some(gamma) => gamma.val().unsqueeze_dim(1),
            None => Tensor::ones(self.shape().matrix(), (device, DType::F32)),
        };
        LayerWeights {
            weight: Weight::Dense(scale),
            bias: self.beta.map(Param::val),
        }
    }

    /// The same in f32 on `device`.
    pub(crate) fn values(&self, device: &Device) -> (Tensor<2>, Option<Tensor<1>>) {
        self.weights(device).values(device, &self.state.traffic)
    }

    pub(crate) fn visit_bytes(&self, visit: &mut dyn FnMut(&[u8])) {
        for param in self.gamma.into_iter().chain(self.beta) {
            visit(param.val().to_data().as_bytes());
        }
    }

    /// Scale and shift in f32 on `device`, with whatever is merged into or mounted on them.
    fn effective(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        let (mut scale, mut shift) = match &self.state.merged {
            Some(merged) => merged.values(device, &self.state.traffic),
            None => self.values(device),
        };
        if self.state.patches.is_idle() {
            return Ok((scale, shift));
        }
        let delta = self.state.patches.delta(device, &self.shape(), |_| {
            let (weight, bias) = self.values(device);
            Ok(BaseValues {
                weight: Some(weight),
                bias,
            })
        })?;
        if let Some(weight) = delta.weight {
            scale = scale + weight;
        }
        if let Some(bias) = delta.bias {
            shift = Some(match shift {
                Some(shift) => shift + bias,
                None => bias,
            });
        }
        Ok((scale, shift))
    }
}

/// That the input's last axis is as wide as the norm.
pub(crate) fn check_width(found: usize, expected: usize) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::InputWidth { found, expected })
}
