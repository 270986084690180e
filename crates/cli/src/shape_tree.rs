//! Which keys of an adapter fit a model of which only names and shapes are known.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor};
use overglaze_core::{Error, LayerState, LayerTree, NameTable, PatchedLayer};
use overglaze_models::{
    FluxConfigFile, ModelError, TensorShapes,
    flux::{Naming, name_table},
};
use overglaze_patches::PatchError;

use crate::CliError;

/// A model without weights: layer names, aliases and shapes.
#[derive(Debug)]
pub struct ShapeTree {
    names: NameTable,
    layers: BTreeMap<String, ShapeLayer>,
}

#[derive(Debug)]
struct ShapeLayer {
    state: LayerState,
    shape: [usize; 2],
    has_bias: bool,
    device: Device,
}

impl ShapeTree {
    /// The layers behind `tensors`, with FLUX's aliases where they are a FLUX transformer's.
    ///
    /// # Errors
    /// [`CliError::Model`] or [`CliError::Core`] for names that contradict each other.
    pub fn new(
        tensors: &TensorShapes,
        config: Option<&FluxConfigFile>,
        device: &Device,
    ) -> Result<Self, CliError> {
        let layers = layers(tensors, device);
        let names = match flux_names(tensors, config) {
            Err(ModelError::NotFlux { .. }) => plain_names(&layers)?,
            names => names?,
        };
        Ok(Self { names, layers })
    }
}

impl LayerTree for ShapeTree {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        for (path, layer) in &self.layers {
            visitor(path, layer);
        }
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        for (path, layer) in &mut self.layers {
            visitor(path, layer);
        }
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

impl PatchedLayer for ShapeLayer {
    fn state(&self) -> &LayerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut LayerState {
        &mut self.state
    }

    fn weight_shape(&self) -> [usize; 2] {
        self.shape
    }

    fn has_bias(&self) -> bool {
        self.has_bias
    }

    fn is_resident(&self) -> bool {
        false
    }

    fn base_values(&self, _: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        Err(PatchError::BaseUnavailable { kind: "any".into() }.into())
    }

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn base_dtype(&self) -> DType {
        DType::F32
    }

    fn visit_base_bytes(&self, _: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        Ok(())
    }
}

/// FLUX's names; the rotary axes, which a file may not tell, do not matter to them.
fn flux_names(
    tensors: &TensorShapes,
    config: Option<&FluxConfigFile>,
) -> Result<NameTable, ModelError> {
    match name_table(tensors, config) {
        Err(ModelError::NeedsConfig { head_dim, .. }) if head_dim > 4 => {
            let axes_dims_rope = Some(vec![2, 2, head_dim - 4]);
            let assumed = FluxConfigFile {
                axes_dims_rope,
                ..config.cloned().unwrap_or_default()
            };
            name_table(tensors, Some(&assumed))
        }
        names => names,
    }
}

fn plain_names(layers: &BTreeMap<String, ShapeLayer>) -> Result<NameTable, CliError> {
    let mut names = NameTable::default();
    for (path, layer) in layers {
        names.add_layer(path, layer.shape[0])?;
    }
    Ok(names)
}

/// Every `<path>.weight` or `<path>.scale` as a layer `[d_output, fan_in]`; of a whole pipeline, only those of
/// the transformer.
fn layers(tensors: &TensorShapes, device: &Device) -> BTreeMap<String, ShapeLayer> {
    let prefix = Naming::detect(tensors).map_or("", |(_, prefix)| prefix);
    let tensors = tensors.below(prefix);
    let layer = |name: &str| {
        let path = name
            .strip_suffix(".weight")
            .or_else(|| name.strip_suffix(".scale"))?;
        let shape = matrix(tensors.shape(name).ok()?)?;
        let has_bias = tensors.contains(&format!("{path}.bias"));
        let (state, device) = (LayerState::default(), device.clone());
        Some((
            path.to_owned(),
            ShapeLayer {
                state,
                shape,
                has_bias,
                device,
            },
        ))
    };
    tensors.names().filter_map(layer).collect()
}

/// `[d_output, fan_in]`, unless that is more than a machine can address.
fn matrix(shape: &[usize]) -> Option<[usize; 2]> {
    let (d_output, rest) = shape.split_first()?;
    let fan_in = rest
        .iter()
        .try_fold(1_usize, |product, size| product.checked_mul(*size))?;
    d_output.checked_mul(fan_in)?;
    Some([*d_output, fan_in])
}
