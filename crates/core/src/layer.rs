//! What every patchable layer offers, whatever its operator.

use std::sync::Arc;

use burn::tensor::{DType, Device, FloatDType, Tensor};
use overglaze_patches::Patch;

use crate::{Error, LayerWeights, PatchStack, Traffic, dense};

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
}

impl Default for LayerState {
    fn default() -> Self {
        Self {
            patches: PatchStack::default(),
            autocast: true,
            traffic: Arc::default(),
            merged: None,
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
        match (self.patches.is_empty(), &self.merged) {
            (false, _) => Err(Error::StillMounted),
            (true, Some(_)) => Err(Error::StillMerged),
            (true, None) => Ok(()),
        }
    }
}

/// A layer that patches can be laid over.
pub trait PatchedLayer {
    /// Patches, switches and counters.
    fn state(&self) -> &LayerState;

    /// The same, to change.
    fn state_mut(&mut self) -> &mut LayerState;

    /// Logical shape `[d_output, fan_in]` of the weight; nothing is loaded to tell it.
    fn weight_shape(&self) -> [usize; 2];

    /// Whether the base has a bias.
    fn has_bias(&self) -> bool;

    /// Whether the base is in place for good, so that a merged weight may be laid over it.
    fn is_resident(&self) -> bool;

    /// The base's dense values in f32 on `device`: weight `[d_output, fan_in]` and bias `[d_output]`.
    ///
    /// # Errors
    /// [`Error::Stream`] when they cannot be loaded.
    fn base_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error>;

    /// The values a forward pass multiplies with: the merged ones while a merge is in place, else the base's;
    /// f32 on `device`.
    ///
    /// # Errors
    /// As [`base_values`](Self::base_values).
    fn effective_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        let Some(merged) = &self.state().merged else {
            return self.base_values(device);
        };
        let (bias, traffic) = (merged.bias.clone(), self.traffic());
        let bias = bias.map(|bias| dense::values(bias, device, traffic));
        let weight = merged.weight.to_dense(device, FloatDType::F32, traffic);
        Ok((weight, bias))
    }

    /// Device of the base's values when dense; the layer's home device otherwise.
    fn device(&self) -> Device;

    /// The dtype a merged weight is kept in: the base's own where the layer's device computes in it, else f32.
    fn base_dtype(&self) -> DType;

    /// The dtype a merged bias is kept in: the base's own, and the weight's where there is none.
    fn bias_dtype(&self) -> DType {
        self.base_dtype()
    }

    /// Names of the formats the base's weight and bias are stored in; an empty one for no bias.
    fn base_formats(&self) -> [&'static str; 2] {
        let bias = self.has_bias().then(|| self.bias_dtype().name());
        [self.base_dtype().name(), bias.unwrap_or_default()]
    }

    /// Hands the base's stored bytes to `visit`, weight first: those of the source where there is one, also
    /// when the layer computes with another form of them.
    ///
    /// # Errors
    /// [`Error::Stream`] when they cannot be loaded.
    fn visit_base_bytes(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Error>;

    /// Lays `patch` over the layer under the name `adapter`.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::BadStrength`], or [`Error::Patch`] when the patch does not fit.
    fn add_patch(
        &mut self,
        adapter: &str,
        patch: Arc<dyn Patch>,
        strength: f32,
    ) -> Result<(), Error> {
        self.patches().check(adapter, strength)?;
        patch.check(self.weight_shape())?;
        self.state_mut().patches.add(adapter, patch, strength)
    }

    /// Takes the patch of `adapter` off; whether there was one.
    fn remove_patch(&mut self, adapter: &str) -> bool {
        self.state_mut().patches.remove(adapter)
    }

    /// Sets the strength of `adapter`'s patch; whether there was one.
    ///
    /// # Errors
    /// [`Error::BadStrength`].
    fn reweight_patch(&mut self, adapter: &str, strength: f32) -> Result<bool, Error> {
        self.state_mut().patches.reweight(adapter, strength)
    }

    /// Takes every patch off; nothing happens when there are none.
    fn clear_patches(&mut self) {
        self.state_mut().patches.clear();
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
