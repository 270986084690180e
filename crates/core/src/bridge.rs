//! The bridge to unmodified Burn modules: our patches through Burn's own reparameterization hook.
//!
//! Burn asks for an effective weight, so a patch is applied in weight space there: ΔW is built for every
//! forward pass. [`PatchedLinear`](crate::PatchedLinear) is the fast way; this one needs no edit at all.

use std::collections::{BTreeMap, BTreeSet};

use burn::{
    module::{Module, Param, Reparameterization, Reparameterizer},
    tensor::{DType, Tensor},
};

use crate::{Error, MountedPatch, PatchStack, dense};

/// Patches on one parameter of a Burn module, e.g. the `weight` of a `burn::nn::Linear`.
#[derive(Module, Debug)]
pub struct PatchReparam {
    #[module(skip)]
    patches: PatchStack,
    #[module(skip)]
    role: Role,
}

/// Which residual a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Weight,
    Bias,
}

impl Reparameterization for PatchReparam {
    const NAME: &'static str = "patch";

    /// The parameter with every patch's residual added.
    ///
    /// # Panics
    /// When a patch that was checked at attachment cannot compute its residual.
    fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
        let dtype = base.dtype();
        let delta = match self.role {
            Role::Weight => self.weight_delta(&base),
            Role::Bias => self.bias_delta(&base),
        };
        match delta {
            Some(delta) => dense::cast(dense::cast(base, DType::F32) + delta, dtype),
            None => base,
        }
    }
}

impl PatchReparam {
    fn weight_delta<const D: usize>(&self, base: &Tensor<D>) -> Option<Tensor<D>> {
        let dims = base.dims();
        let values = || Ok::<_, Error>(dense::matrix_of(dense::cast(base.clone(), DType::F32)));
        let delta = self
            .patches
            .delta(&base.device(), dense::matrix_shape(dims), values)
            .expect("patches were checked when they were attached");
        delta.weight.map(|delta| dense::param_of(delta, dims))
    }

    fn bias_delta<const D: usize>(&self, base: &Tensor<D>) -> Option<Tensor<D>> {
        let delta = self.patches.delta_bias(&base.device())?;
        Some(delta.reshape(base.dims()))
    }
}

/// Attaches patch stacks to parameters of any Burn module, by layer path.
///
/// The stack of the layer `blocks.0.fc` goes to its parameters `blocks.0.fc.weight` and, for the bias
/// residuals, `blocks.0.fc.bias`; the path of a module that is itself the layer is empty. A `weight` of two
/// axes is taken for a linear layer's, of one for a norm's scale, of more for a convolution's.
/// [`unused`](Self::unused) lists the layers whose patches found no parameter, or none they fit.
#[derive(Debug, Default)]
pub struct PatchReparameterizer {
    stacks: BTreeMap<String, PatchStack>,
    /// Parameters that are still to come, by path.
    awaited: BTreeSet<String>,
}

impl PatchReparameterizer {
    /// Puts `stack` on the layer `path`.
    pub fn insert(&mut self, path: &str, stack: PatchStack) {
        self.awaited.insert(parameter(path, WEIGHT));
        if stack.has_bias() {
            self.awaited.insert(parameter(path, BIAS));
        }
        self.stacks.insert(path.into(), stack);
    }

    /// Paths of layers with a residual that no parameter has taken: there is no such layer, the patch has
    /// another shape, or the layer has no bias for a bias residual.
    #[must_use]
    pub fn unused(&self) -> Vec<&str> {
        let is_awaited = |path: &&String| {
            [WEIGHT, BIAS]
                .iter()
                .any(|name| self.awaited.contains(&parameter(path, name)))
        };
        let paths = self.stacks.keys().filter(is_awaited);
        paths.map(String::as_str).collect()
    }
}

impl Reparameterizer for &mut PatchReparameterizer {
    type Reparam = PatchReparam;

    fn reparameterize<const D: usize>(
        &mut self,
        path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<PatchReparam>) {
        let (layer, name) = path.rsplit_once('.').unwrap_or(("", path));
        let stack = self.stacks.get(layer);
        let Some((stack, role)) = stack.and_then(|stack| Some((stack, role_of(name, stack)?)))
        else {
            return (param, None);
        };
        let dims = param.lazy_shape().dims::<D>();
        if !fits(stack, role, dims) {
            return (param, None);
        }
        self.awaited.remove(path);
        let patches = stack.clone();
        (param, Some(PatchReparam { patches, role }))
    }
}

fn role_of(name: &str, stack: &PatchStack) -> Option<Role> {
    match name {
        WEIGHT => Some(Role::Weight),
        BIAS if stack.has_bias() => Some(Role::Bias),
        _ => None,
    }
}

fn fits<const D: usize>(stack: &PatchStack, role: Role, dims: [usize; D]) -> bool {
    let mut patches = stack.iter().map(MountedPatch::patch);
    match role {
        Role::Weight => patches.all(|patch| patch.check(dense::matrix_shape(dims)).is_ok()),
        Role::Bias => patches.all(|patch| {
            let delta = patch.delta_bias();
            delta.is_none_or(|delta| D == 1 && delta.dims() == [dims[0]])
        }),
    }
}

fn parameter(layer: &str, name: &str) -> String {
    if layer.is_empty() {
        return name.into();
    }
    format!("{layer}.{name}")
}

const WEIGHT: &str = "weight";
const BIAS: &str = "bias";
