//! One layer of an unmodified Burn module, as adapters are mounted on it.

use burn::tensor::{Device, Tensor};
use overglaze_patches::LayerShape;

use crate::{
    Error, LayerLimits, LayerState, LayerWeights, PatchReparam, PatchedLayer, Weight, WeightRef,
    bridge::{Role, flat},
    module_layers::{FoundLayer, StoredParam},
};

/// The parameters of a layer, shared with its module, and the patches for them.
#[derive(Clone, Debug)]
pub(crate) struct BridgeLayer {
    found: FoundLayer,
    state: LayerState,
}

impl BridgeLayer {
    pub(crate) fn new(found: FoundLayer) -> Self {
        Self {
            found,
            state: LayerState::default(),
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.found.path
    }

    /// What is to be attached to its parameters, by their paths; nothing where nothing has an effect.
    pub(crate) fn reparams(&self) -> Vec<(String, PatchReparam)> {
        let (state, found) = (&self.state, &self.found);
        if state.patches.is_idle() && state.merged.is_none() {
            return Vec::new();
        }
        let merged = state.merged.as_ref();
        let device = self.device();
        let values = merged.map(|merged| merged.values(&device, &state.traffic));
        let (weight, bias) = values.unzip();
        let reparam = |role, other: Option<&StoredParam>, merged| PatchReparam {
            patches: state.patches.clone(),
            shape: found.shape.clone(),
            role,
            other: other.cloned(),
            merged,
        };
        let weight = reparam(Role::Weight, found.bias.as_ref(), weight);
        let mut reparams = vec![(found.weight.path().to_owned(), weight)];
        if let Some(param) = &found.bias {
            let bias = bias.flatten().map(|bias: Tensor<1>| bias.unsqueeze_dim(1));
            let bias = reparam(Role::Bias, Some(&found.weight), bias);
            reparams.push((param.path().to_owned(), bias));
        }
        reparams
    }
}

impl PatchedLayer for BridgeLayer {
    fn state(&self) -> &LayerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut LayerState {
        &mut self.state
    }

    fn layer_shape(&self) -> LayerShape {
        self.found.shape.clone()
    }

    fn limits(&self) -> LayerLimits {
        LayerLimits {
            takes_bias: self.has_bias(),
            ..LayerLimits::default()
        }
    }

    fn has_bias(&self) -> bool {
        self.found.bias.is_some()
    }

    fn device(&self) -> Device {
        self.found.weight.matrix().device()
    }

    fn acquire_base(&self) -> Result<WeightRef, Error> {
        let bias = self.found.bias.as_ref();
        Ok(WeightRef::Owned(LayerWeights {
            weight: Weight::Dense(self.found.weight.matrix()),
            bias: bias.map(|bias| flat(bias.matrix())),
        }))
    }

    fn base_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        let bias = self.found.bias.as_ref();
        let bias = bias.map(|bias| flat(bias.values(device)));
        Ok((self.found.weight.values(device), bias))
    }
}
