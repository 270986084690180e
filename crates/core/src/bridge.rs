//! The bridge to unmodified Burn modules: our patches through Burn's own reparameterization hook.
//!
//! [`PatchedModule`] finds the layers of a module by the type that holds their parameters, under the module's own
//! field names, and takes adapters by name like any other [`LayerTree`]. Burn asks for an effective parameter, so
//! a patch is applied in weight space there: ΔW is built for every forward pass, unless it is mounted directly.
//! The wrappers, such as [`PatchedLinear`](crate::PatchedLinear), are the fast way; this one needs no edit at all.
//!
//! What Burn's hook cannot do is refused at mount, by name: it cannot add a parameter, so a patch with a bias
//! residual finds no place on a layer without a bias. It does not show a convolution's groups either; a weight is
//! `[d_output, d_input / groups, kernel…]`, and patches are for that shape whatever the groups are.

use std::collections::HashMap;

use burn::{
    module::{Module, Param, Reparameterization, Reparameterizer},
    tensor::{DType, Device, Tensor},
};
use overglaze_patches::LayerShape;

use crate::{
    Error, LayerTree, NameTable, PatchStack, PatchedLayer,
    bridge_layer::BridgeLayer,
    dense,
    module_layers::{StoredParam, layers_of},
    residual::BaseValues,
};

/// A Burn module of any kind, and patches for its layers.
///
/// It is a [`LayerTree`]: [`mount`](crate::mount()), [`swap`](crate::swap) and the others lay adapters over it.
/// [`apply`](Self::apply) makes the patched module, [`remove`](Self::remove) gives the original back. Both
/// share their parameters with it.
///
/// Its layers are the `Linear`, `Conv1d`, `Conv2d`, `Conv3d`, `Embedding`, `LayerNorm`, `GroupNorm` and `RmsNorm`
/// of `burn::nn`, however deep. Paths are field names and indices; the variants of an enum are left out.
#[derive(Clone, Debug)]
pub struct PatchedModule<M> {
    module: M,
    layers: Vec<BridgeLayer>,
    names: NameTable,
}

impl<M: Module> PatchedModule<M> {
    /// Finds the layers of `module`. Parameters that are still lazy are initialized.
    ///
    /// # Errors
    /// [`Error::Reparameterized`] where a parameter has a reparameterization already, which Burn cannot nest;
    /// [`Error::AmbiguousName`] where two paths are the same with underscores.
    pub fn over(module: M) -> Result<Self, Error> {
        let layers = layers_of(&module)?;
        let mut names = NameTable::default();
        for layer in &layers {
            names.add_layer(layer.path(), layer.weight_shape()[0])?;
        }
        Ok(Self {
            module,
            layers,
            names,
        })
    }

    /// The module with everything that is mounted now. Later changes need another call.
    ///
    /// A forward pass of the result panics where a patch that was checked at mount cannot compute its residual:
    /// Burn's hook has no other way out.
    #[must_use]
    pub fn apply(&self) -> M {
        let mut params = HashMap::new();
        for layer in &self.layers {
            params.extend(layer.reparams());
        }
        if params.is_empty() {
            return self.module.clone();
        }
        let module = self.module.clone();
        module.apply_reparameterization(Attachment { params })
    }

    /// The module as it was given, with its own parameters.
    #[must_use]
    pub fn remove(self) -> M {
        self.module
    }
}

impl<M> LayerTree for PatchedModule<M> {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        for layer in &self.layers {
            visitor(layer.path(), layer);
        }
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        for layer in &mut self.layers {
            let path = layer.path().to_owned();
            visitor(&path, layer);
        }
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

/// Patches on one parameter of a Burn module, e.g. the `weight` of a `burn::nn::Linear`.
#[derive(Module, Debug)]
pub struct PatchReparam {
    #[module(skip)]
    pub(crate) patches: PatchStack,
    #[module(skip)]
    pub(crate) shape: LayerShape,
    #[module(skip)]
    pub(crate) role: Role,
    /// The layer's other parameter, where it has one.
    #[module(skip)]
    pub(crate) other: Option<StoredParam>,
    /// The merged parameter as a matrix, where patches are mounted directly.
    #[module(skip)]
    pub(crate) merged: Option<Tensor<2>>,
}

/// Which residual a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A weight, or a norm's scale.
    Weight,
    /// A bias, or a norm's shift.
    Bias,
}

impl Reparameterization for PatchReparam {
    const NAME: &'static str = "patch";

    /// The parameter with every patch's residual added, rounded once.
    ///
    /// # Panics
    /// When a patch that was checked at mount cannot compute its residual.
    fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
        let (dims, dtype, device) = (base.dims(), base.dtype(), base.device());
        let matrix = dense::cast(self.matrix_of(base.clone()), DType::F32);
        let delta = self
            .delta(&device, &matrix)
            .expect("patches were checked when they were mounted");
        let merged = self.merged.clone();
        let merged = merged.map(|merged| dense::cast(merged.to_device(&device), DType::F32));
        let effective = match (merged, delta) {
            (None, None) => return base,
            (Some(merged), None) => merged,
            (None, Some(delta)) => matrix + delta,
            (Some(merged), Some(delta)) => merged + delta,
        };
        self.param_of(dense::cast(effective, dtype), dims)
    }
}

impl PatchReparam {
    /// The residual on a parameter whose base is `matrix`.
    fn delta(&self, device: &Device, matrix: &Tensor<2>) -> Result<Option<Tensor<2>>, Error> {
        if self.patches.is_idle() {
            return Ok(None);
        }
        let other = || self.other.as_ref().map(|other| other.values(device));
        match self.role {
            Role::Weight => {
                let delta = self.patches.delta(device, &self.shape, |needs| {
                    let bias = needs.bias.then(other).flatten();
                    Ok(BaseValues {
                        weight: Some(matrix.clone()),
                        bias: bias.map(flat),
                    })
                })?;
                Ok(delta.weight)
            }
            Role::Bias => {
                let bias = flat(matrix.clone());
                let delta = self.patches.bias_delta(device, &self.shape, |needs| {
                    Ok(BaseValues {
                        weight: needs.weight.then(other).flatten(),
                        bias: Some(bias),
                    })
                })?;
                Ok(delta.map(|delta| delta.unsqueeze_dim(1)))
            }
        }
    }

    fn is_transposed(&self) -> bool {
        self.role == Role::Weight && is_transposed(&self.shape)
    }

    fn matrix_of<const D: usize>(&self, param: Tensor<D>) -> Tensor<2> {
        dense::matrix_of(param, self.is_transposed())
    }

    fn param_of<const D: usize>(&self, matrix: Tensor<2>, dims: [usize; D]) -> Tensor<D> {
        dense::param_of(matrix, dims, self.is_transposed())
    }
}

/// A vector that was seen as `[d_output, 1]`.
pub(crate) fn flat(matrix: Tensor<2>) -> Tensor<1> {
    matrix.flatten(0, 1)
}

/// Whether Burn keeps the weight of such a layer as `[d_input, d_output]`.
pub(crate) fn is_transposed(shape: &LayerShape) -> bool {
    shape.operator() == overglaze_patches::Operator::Linear
}

/// Hands every parameter its patches, by its path.
struct Attachment {
    params: HashMap<String, PatchReparam>,
}

impl Reparameterizer for Attachment {
    type Reparam = PatchReparam;

    fn reparameterize<const D: usize>(
        &mut self,
        path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<PatchReparam>) {
        let reparam = self.params.remove(path);
        (param, reparam)
    }
}
