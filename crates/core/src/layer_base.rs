//! The parameters of a layer with a weight matrix, wherever they are: a Burn layer's own, or a frozen base.
//!
//! Wrappers differ in their operator and in how Burn lays their weight out; what is asked of their parameters
//! is the same, and answered here. A weight is `[d_output, fan_in]`, a bias `[d_output]`.

use std::{cell::OnceCell, sync::Arc};

use burn::{
    module::Param,
    tensor::{DType, Device, FloatDType, Tensor},
};
use overglaze_patches::{LayerShape, Patch};

use crate::{
    Error, FrozenWeight, LayerState, LayerWeights, Path, Traffic, Weight, WeightRef, dense,
    frozen::FrozenBase,
    residual::{BaseNeeds, BaseValues, Residual, ResidualPlace},
};

/// A view of a wrapper's parameters, `D` axes in Burn's layout.
pub(crate) struct LayerBase<'a, const D: usize> {
    /// The Burn weight; `None` when the base is frozen.
    pub(crate) weight: Option<&'a Param<Tensor<D>>>,
    /// The Burn bias `[d_output]`.
    pub(crate) bias: Option<&'a Param<Tensor<1>>>,
    pub(crate) frozen: Option<&'a FrozenBase>,
    /// Where a frozen base computes.
    pub(crate) home: &'a Device,
    pub(crate) state: &'a LayerState,
    /// The Burn weight as `[d_output, fan_in]`.
    pub(crate) as_rows: fn(Tensor<D>) -> Tensor<2>,
}

/// The parameters of one forward pass, and their dense values once something has asked for them: what patches
/// had decoded or moved is not decoded or moved again.
pub(crate) struct Acquired {
    pub(crate) weights: WeightRef,
    /// The weight in f32 on the pass's device.
    dense: OnceCell<Tensor<2>>,
    /// The bias there.
    bias: OnceCell<Option<Tensor<1>>>,
}

impl Acquired {
    /// The weight `[d_output, fan_in]` in f32 on `device`, which is one and the same in every call; decoded in
    /// the first.
    pub(crate) fn dense(&self, device: &Device, traffic: &Traffic) -> &Tensor<2> {
        let weight = &self.weights.weight;
        self.dense
            .get_or_init(|| weight.to_dense(device, FloatDType::F32, traffic))
    }

    /// The bias `[d_output]` in f32 on `device`, which is one and the same in every call; moved in the first.
    pub(crate) fn bias(&self, device: &Device, traffic: &Traffic) -> Option<&Tensor<1>> {
        let bias = self.weights.bias.as_ref();
        let values = || bias.map(|bias| dense::values(bias.clone(), device, traffic));
        self.bias.get_or_init(values).as_ref()
    }

    /// The dense weight, where it has been asked for already.
    pub(crate) fn known_dense(&self) -> Option<&Tensor<2>> {
        self.dense.get()
    }
}

impl<'a, const D: usize> LayerBase<'a, D> {
    /// The Burn weight, when nothing has to be done but Burn's own operation on an input of `dtype` on `device`.
    pub(crate) fn native_weight(&self, device: &Device, dtype: DType) -> Option<Tensor<D>> {
        let is_bare = self.state.patches.is_idle() && self.state.merged.is_none();
        let weight = self.weight.filter(|_| is_bare)?.val();
        let bias_fits = self.bias.is_none_or(|bias| {
            let bias = bias.val();
            bias.device() == *device && bias.dtype() == dtype
        });
        (bias_fits && weight.device() == *device && weight.dtype() == dtype).then_some(weight)
    }

    /// The path a forward pass with an input of `dtype` on `device` would take.
    pub(crate) fn path(&self, device: &Device, dtype: DType) -> Result<Path, Error> {
        if !self.state.patches.is_idle() {
            return Ok(Path::Patched);
        }
        Ok(Path::of(&*self.acquire()?, device, dtype))
    }

    /// The parameters a forward pass computes with: the merged ones while a merge is in place.
    pub(crate) fn acquire(&self) -> Result<WeightRef, Error> {
        match &self.state.merged {
            Some(merged) => Ok(WeightRef::Shared(Arc::clone(merged))),
            None => self.acquire_base(),
        }
    }

    /// The same, for a pass over an input on `device`: they must be there, or be allowed to follow it.
    pub(crate) fn acquire_for(&self, device: &Device) -> Result<Acquired, Error> {
        let weights = self.acquire()?;
        let follows = self.state.autocast || !self.state.patches.is_idle();
        let bias = weights.bias.as_ref();
        let is_elsewhere =
            weights.weight.needs_move(device) || bias.is_some_and(|bias| bias.device() != *device);
        if follows || !is_elsewhere {
            return Ok(Acquired {
                weights,
                dense: OnceCell::new(),
                bias: OnceCell::new(),
            });
        }
        Err(Error::AutocastOff {
            weight: weights.weight.place(),
            input: format!("{device:?}"),
        })
    }

    /// The base's own parameters.
    pub(crate) fn acquire_base(&self) -> Result<WeightRef, Error> {
        if let Some(weight) = self.weight {
            return Ok(WeightRef::Owned(LayerWeights {
                weight: Weight::Dense((self.as_rows)(weight.val())),
                bias: self.bias.map(Param::val),
            }));
        }
        self.frozen().ok_or(Error::NoWeight)?.acquire()
    }

    /// The summed residual of the patches on `device`, `None` when no patch has an effect.
    pub(crate) fn residual(
        &self,
        device: &Device,
        shape: &LayerShape,
        current: &Acquired,
        applies_itself: impl Fn(&dyn Patch) -> bool,
    ) -> Result<Option<Arc<Residual>>, Error> {
        if self.state.patches.is_idle() {
            return Ok(None);
        }
        let base = |needs| self.for_patches(current, device, needs);
        let place = ResidualPlace {
            device,
            shape,
            room: &self.state.room,
            params: [
                self.weight.map(|weight| weight.id),
                self.bias.map(|bias| bias.id),
            ],
        };
        let residual = self.state.patches.residual(place, applies_itself, base)?;
        Ok(Some(residual))
    }

    /// That the layer is Burn's own, and nothing is laid over it.
    pub(crate) fn check_burn(&self) -> Result<(), Error> {
        self.state.check_bare()?;
        match self.frozen() {
            Some(_) => Err(Error::NotABurnLayer),
            None => Ok(()),
        }
    }

    /// The frozen base; a Burn weight goes before it.
    pub(crate) fn frozen(&self) -> Option<&'a FrozenWeight> {
        let frozen = self.frozen.filter(|_| self.weight.is_none())?;
        Some(&frozen.weight)
    }

    pub(crate) fn has_bias(&self) -> bool {
        self.bias.is_some() || self.frozen.is_some_and(|frozen| frozen.has_bias)
    }

    pub(crate) fn device(&self) -> Device {
        self.weight
            .map_or_else(|| self.home.clone(), Param::lazy_device)
    }

    /// What patches are residuals against, in f32 on `device`: never the merged weight.
    fn for_patches(
        &self,
        current: &Acquired,
        device: &Device,
        needs: BaseNeeds,
    ) -> Result<BaseValues, Error> {
        let traffic = &self.state.traffic;
        let below = match self.state.merged {
            Some(_) => Some(self.acquire_base()?),
            None => None,
        };
        let (weight, bias) = match below {
            Some(base) => {
                let weight = || base.weight.to_dense(device, FloatDType::F32, traffic);
                let bias = base.bias.clone().filter(|_| needs.bias);
                let bias = bias.map(|bias| dense::values(bias, device, traffic));
                (needs.weight.then(weight), bias)
            }
            None => (
                needs.weight.then(|| current.dense(device, traffic).clone()),
                needs
                    .bias
                    .then(|| current.bias(device, traffic).cloned())
                    .flatten(),
            ),
        };
        Ok(BaseValues { weight, bias })
    }
}

impl Path {
    /// How an unpatched pass over `base` with an input of `dtype` on `device` runs.
    pub(crate) fn of(base: &LayerWeights, device: &Device, dtype: DType) -> Self {
        let bias = base.bias.as_ref();
        if base.weight.needs_move(device) || bias.is_some_and(|bias| bias.device() != *device) {
            return Self::Moved;
        }
        let differs =
            base.weight.needs_cast(dtype) || bias.is_some_and(|bias| bias.dtype() != dtype);
        if dtype.is_float() && differs {
            return Self::Cast;
        }
        Self::Native
    }
}
