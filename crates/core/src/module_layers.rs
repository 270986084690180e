//! The layers of a Burn module, found by the types that hold its parameters.

use std::{collections::BTreeMap, fmt, sync::Arc};

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{DType, Device, Tensor},
};
use overglaze_patches::LayerShape;

use crate::{Error, bridge::is_transposed, bridge_layer::BridgeLayer, dense};

/// The layers of `module`, by path.
pub(crate) fn layers_of(module: &impl Module) -> Result<Vec<BridgeLayer>, Error> {
    let mut finder = Finder::default();
    module.visit(&mut finder);
    if let Some(parameter) = finder.reparameterized {
        return Err(Error::Reparameterized { parameter });
    }
    let found = finder.layers.into_iter().filter_map(|(path, found)| {
        let (weight, shape) = found.weight?;
        Some(FoundLayer {
            path,
            shape,
            weight,
            bias: found.bias,
        })
    });
    Ok(found.map(BridgeLayer::new).collect())
}

/// A layer and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct FoundLayer {
    pub(crate) path: String,
    pub(crate) shape: LayerShape,
    pub(crate) weight: StoredParam,
    pub(crate) bias: Option<StoredParam>,
}

/// A parameter of a Burn module, shared with it.
#[derive(Clone)]
pub(crate) struct StoredParam {
    path: String,
    read: Arc<dyn Fn() -> Tensor<2> + Send + Sync>,
}

impl StoredParam {
    fn of<const D: usize>(path: String, param: &Param<Tensor<D>>, transposed: bool) -> Self {
        // Two copies of a lazy parameter would be initialized each in its own way.
        let tensor = param.val();
        Self {
            path,
            read: Arc::new(move || dense::matrix_of(tensor.clone(), transposed)),
        }
    }

    /// Where it is in the module, variants of enums included.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The values `[d_output, fan_in]` as they are; those of a vector `[d_output, 1]`.
    pub(crate) fn matrix(&self) -> Tensor<2> {
        (self.read)()
    }

    /// The same in f32 on `device`.
    pub(crate) fn values(&self, device: &Device) -> Tensor<2> {
        dense::cast(self.matrix().to_device(device), DType::F32)
    }
}

impl fmt::Debug for StoredParam {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "StoredParam({})", self.path)
    }
}

/// A type of `burn::nn`: what Burn calls it, its weight, its bias, and the shape of a weight of some dimensions.
struct LayerType {
    container: &'static str,
    weight: &'static str,
    bias: &'static str,
    shape: fn(&[usize]) -> LayerShape,
}

#[derive(Default)]
struct Finder {
    /// Names of the fields and indices on the way, with the types that hold them.
    way: Vec<(String, String)>,
    layers: BTreeMap<String, Found>,
    reparameterized: Option<String>,
}

#[derive(Default)]
struct Found {
    weight: Option<(StoredParam, LayerShape)>,
    bias: Option<StoredParam>,
}

impl ModuleVisitor for Finder {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        if container_type == "Reparameterization" {
            let path = self.param_path();
            self.reparameterized.get_or_insert(path);
        }
        self.way.push((name.into(), container_type.into()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.way.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some((name, container)) = self.way.last() else {
            return;
        };
        let Some(layer) = TYPES.iter().find(|layer| layer.container == container) else {
            return;
        };
        let (path, layer_path) = (self.param_path(), self.layer_path());
        if name == layer.weight {
            let dims = param.lazy_shape().dims::<D>();
            let shape = (layer.shape)(&dims);
            let stored = StoredParam::of(path, param, is_transposed(&shape));
            self.layers.entry(layer_path).or_default().weight = Some((stored, shape));
        } else if name == layer.bias {
            let stored = StoredParam::of(path, param, false);
            self.layers.entry(layer_path).or_default().bias = Some(stored);
        }
    }
}

impl Finder {
    /// As Burn's reparameterizers are told it.
    fn param_path(&self) -> String {
        let names: Vec<_> = self.way.iter().map(|(name, _)| name.as_str()).collect();
        names.join(".")
    }

    /// Without the parameter's own name, and without the variants of enums, which no adapter knows.
    fn layer_path(&self) -> String {
        let modules = self
            .way
            .split_last()
            .map_or(&[][..], |(_, modules)| modules);
        let fields = modules
            .iter()
            .filter(|(_, container)| !container.starts_with("Enum:"));
        let names: Vec<_> = fields.map(|(name, _)| name.as_str()).collect();
        names.join(".")
    }
}

fn linear(dims: &[usize]) -> LayerShape {
    // Burn's own layout is `[d_input, d_output]`.
    LayerShape::linear(size(dims, 1), size(dims, 0))
}

fn conv(dims: &[usize]) -> LayerShape {
    LayerShape::conv(dims, 1)
}

fn embedding(dims: &[usize]) -> LayerShape {
    LayerShape::embedding(size(dims, 0), size(dims, 1))
}

fn norm(dims: &[usize]) -> LayerShape {
    LayerShape::norm(size(dims, 0))
}

fn size(dims: &[usize], axis: usize) -> usize {
    dims.get(axis).copied().unwrap_or(1)
}

const fn layer_type(
    container: &'static str,
    [weight, bias]: [&'static str; 2],
    shape: fn(&[usize]) -> LayerShape,
) -> LayerType {
    LayerType {
        container,
        weight,
        bias,
        shape,
    }
}

const TYPES: [LayerType; 8] = [
    layer_type("Struct:Linear", ["weight", "bias"], linear),
    layer_type("Struct:Conv1d", ["weight", "bias"], conv),
    layer_type("Struct:Conv2d", ["weight", "bias"], conv),
    layer_type("Struct:Conv3d", ["weight", "bias"], conv),
    layer_type("Struct:Embedding", ["weight", ""], embedding),
    layer_type("Struct:LayerNorm", ["gamma", "beta"], norm),
    layer_type("Struct:GroupNorm", ["gamma", "beta"], norm),
    layer_type("Struct:RmsNorm", ["gamma", ""], norm),
];
