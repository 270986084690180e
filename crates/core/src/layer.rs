//! What every patchable layer offers, whatever its operator.

use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};
use overglaze_patches::{BaseAccess, LayerShape, Patch, PatchError};

use crate::{
    Error, FrozenWeight, LayerWeights, PatchStack, Traffic, WeightRef, cache_room::CacheRoom,
    change::LayerChange, error::value_or_panic,
};

/// The patches, switches and counters every wrapper carries beside its parameters.
///
/// Cloning a layer copies its patch list and shares everything else.
#[derive(Clone, Debug)]
pub struct LayerState {
    pub(crate) patches: PatchStack,
    pub(crate) autocast: bool,
    pub(crate) traffic: Arc<Traffic>,
    /// A merged set, laid over the base; the base itself stays as it is.
    pub(crate) merged: Option<Arc<LayerWeights>>,
    /// Where kept residuals are counted.
    pub(crate) room: CacheRoom,
}

impl Default for LayerState {
    fn default() -> Self {
        Self {
            patches: PatchStack::default(),
            autocast: true,
            traffic: Arc::default(),
            merged: None,
            room: CacheRoom::default(),
        }
    }
}

impl LayerState {
    pub(crate) fn with_traffic(traffic: Arc<Traffic>) -> Self {
        Self {
            traffic,
            ..Self::default()
        }
    }

    /// That nothing is laid over the layer.
    pub(crate) fn check_bare(&self) -> Result<(), Error> {
        if self.patches.iter().any(|patch| !patch.is_direct()) {
            return Err(Error::StillMounted);
        }
        if self.patches.is_empty() {
            return Ok(());
        }
        Err(Error::StillMerged)
    }
}

/// What a layer can do for a patch beside what its shape says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerLimits {
    /// The base's values can be had; a weight that only a product can read has none to show.
    pub shows_values: bool,
    /// A bias residual has a place, whether or not the base has a bias.
    pub takes_bias: bool,
}

impl Default for LayerLimits {
    fn default() -> Self {
        Self {
            shows_values: true,
            takes_bias: true,
        }
    }
}

impl LayerLimits {
    /// That `patch` has a meaning on a layer of `shape` with these limits.
    pub(crate) fn check(self, patch: &dyn Patch, shape: &LayerShape) -> Result<(), PatchError> {
        patch.check(shape)?;
        let kind = || patch.kind().to_owned();
        if patch.base_access() == BaseAccess::Weight && !self.shows_values {
            return Err(PatchError::BaseUnavailable { kind: kind() });
        }
        if patch.changes_bias() && !self.takes_bias {
            return Err(PatchError::NoMeaning {
                kind: kind(),
                operator: shape.operator(),
                why: "it changes the bias, and this one has none and takes none; behind the bridge, where \
                      Burn's hook cannot add one, give the layer a bias of zeros or use its wrapper"
                    .into(),
            });
        }
        Ok(())
    }
}

/// A layer that patches can be laid over.
pub trait PatchedLayer {
    /// Patches, switches and counters.
    fn state(&self) -> &LayerState;

    /// The same, to change.
    fn state_mut(&mut self) -> &mut LayerState;

    /// Operator and logical shape of the weight; nothing is loaded to tell it.
    fn layer_shape(&self) -> LayerShape;

    /// The weight's shape as a matrix `[d_output, fan_in]`.
    fn weight_shape(&self) -> [usize; 2] {
        self.layer_shape().matrix()
    }

    /// Whether the base has a bias; nothing is loaded to tell it.
    fn has_bias(&self) -> bool;

    /// Device of the base's values when dense; the layer's home device otherwise.
    fn device(&self) -> Device;

    /// The base's parameters, in place until the answer is dropped: never the merged ones.
    ///
    /// # Errors
    /// [`Error::Stream`] when they cannot be loaded, [`Error::NotStarted`], [`Error::NoWeight`].
    fn acquire_base(&self) -> Result<WeightRef, Error>;

    /// Where the base's parameters are, when they are frozen; `None` for parameters of Burn's.
    fn frozen(&self) -> Option<&FrozenWeight> {
        None
    }

    /// Whether the base is in place for good, so that a merged weight may be laid over it.
    fn is_resident(&self) -> bool {
        self.frozen()
            .is_none_or(|frozen| frozen.in_place().is_some())
    }

    /// The base's dense values in f32 on `device`: weight `[d_output, fan_in]` and bias `[d_output]`.
    ///
    /// # Errors
    /// As [`acquire_base`](Self::acquire_base).
    fn base_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        Ok(self.acquire_base()?.values(device, self.traffic()))
    }

    /// The parameters of a frozen base that is in place for good, as they are stored there; `None` for any other.
    fn weights_in_place(&self) -> Option<&LayerWeights> {
        self.frozen()?.in_place()
    }

    /// The values a forward pass multiplies with: the merged ones while a merge is in place, else the base's;
    /// f32 on `device`.
    ///
    /// # Errors
    /// As [`base_values`](Self::base_values).
    fn effective_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        let Some(merged) = &self.state().merged else {
            return self.base_values(device);
        };
        Ok(merged.values(device, self.traffic()))
    }

    /// The dtype a merged weight is kept in: the base's own where the layer's device computes in it, else f32.
    fn base_dtype(&self) -> DType {
        let base = resident_base(self);
        base.map_or(DType::F32, |base| base.weight.dense_dtype(&self.device()))
    }

    /// The dtype a merged bias is kept in: the base's own, and the weight's where there is none.
    fn bias_dtype(&self) -> DType {
        let own = resident_base(self).and_then(|base| Some(base.bias.as_ref()?.dtype()));
        own.unwrap_or_else(|| self.base_dtype())
    }

    /// Names of the formats the base's weight and bias are stored in; an empty one for no bias.
    fn base_formats(&self) -> [&'static str; 2] {
        if let Some(frozen) = self.frozen() {
            return frozen.formats();
        }
        let bias = self.has_bias().then(|| self.bias_dtype().name());
        [self.base_dtype().name(), bias.unwrap_or_default()]
    }

    /// Hands the base's stored bytes to `visit`, weight first: those of the source where there is one, also
    /// when the layer computes with another form of them.
    ///
    /// # Errors
    /// As [`acquire_base`](Self::acquire_base).
    fn visit_base_bytes(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.acquire_base()?.visit_bytes(visit);
        Ok(())
    }

    /// What the layer can do for a patch.
    fn limits(&self) -> LayerLimits {
        LayerLimits {
            shows_values: self.frozen().is_none_or(FrozenWeight::shows_values),
            ..LayerLimits::default()
        }
    }

    /// Lays `patch` as a sidecar over the layer under the name `adapter`.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::BadStrength`], [`Error::TwoReplacements`], or [`Error::Patch`] when the
    /// patch does not fit.
    fn add_patch(
        &mut self,
        adapter: &str,
        patch: Arc<dyn Patch>,
        strength: f32,
    ) -> Result<(), Error> {
        let shape = self.layer_shape();
        self.patches().check(adapter, strength)?;
        self.limits().check(&*patch, &shape)?;
        let stack = &mut self.state_mut().patches;
        stack.check_replaced(&shape.to_string(), adapter, &*patch)?;
        stack.add(adapter, patch, strength)
    }

    /// Takes the patch of `adapter` off; whether there was one.
    ///
    /// # Panics
    /// Where other direct patches stay and cannot compute what they computed at mount;
    /// [`unmount`](crate::unmount) answers that as an error.
    fn remove_patch(&mut self, adapter: &str) -> bool {
        let mut stack = self.patches().clone();
        let was_there = stack.remove(adapter);
        if was_there {
            value_or_panic(LayerChange::to(self, stack)).put(self.state_mut());
        }
        was_there
    }

    /// Sets the strength of `adapter`'s patch; whether there was one.
    ///
    /// # Errors
    /// [`Error::BadStrength`], or what direct patches find wrong with the base; nothing changes then.
    fn reweight_patch(&mut self, adapter: &str, strength: f32) -> Result<bool, Error> {
        let mut stack = self.patches().clone();
        if !stack.reweight(adapter, strength)? {
            return Ok(false);
        }
        LayerChange::to(self, stack)?.put(self.state_mut());
        Ok(true)
    }

    /// Takes every patch off; nothing happens when there are none.
    fn clear_patches(&mut self) {
        let state = self.state_mut();
        state.patches.clear();
        state.merged = None;
    }

    /// How many patches are on the layer.
    fn num_patches(&self) -> usize {
        self.state().patches.len()
    }

    /// The patches on the layer.
    fn patches(&self) -> &PatchStack {
        &self.state().patches
    }

    /// Whether the base follows the input to its device (the default) while no patch is active.
    fn is_autocast(&self) -> bool {
        self.state().autocast
    }

    /// Turns following the input's device on or off.
    ///
    /// A layer with active patches follows the input whatever this says: residuals are computed where the
    /// input is, so the base's output has to be there too.
    fn set_autocast(&mut self, autocast: bool) {
        self.state_mut().autocast = autocast;
    }

    /// Counters of base bytes written and moved.
    fn traffic(&self) -> &Arc<Traffic> {
        &self.state().traffic
    }
}

/// The base, where it can be had without loading it.
fn resident_base(layer: &(impl PatchedLayer + ?Sized)) -> Option<WeightRef> {
    layer.is_resident().then(|| layer.acquire_base().ok())?
}
