//! `y = x · Wᵀ + b + Σ strengthᵢ · (x · ΔWᵢᵀ + Δbᵢ)`: a linear layer whose base is never rewritten.
//!
//! The four paths are those of `InvokeAI`'s custom modules: patched; the weight has to move; dtypes
//! differ; native, which is Burn's own layer. All but Burn's own compute in f32, whatever the input's dtype,
//! and round the sum once: a patch changes the output by its residual and by nothing else.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::Linear,
    tensor::{DType, Device, Tensor},
};

use overglaze_patches::{LayerShape, Patch};

use crate::{
    Error, FrozenWeight, LayerState, LayerWeights, PatchedLayer, Traffic, Weight, WeightRef, dense,
    error::value_or_panic,
    frozen::FrozenBase,
    layer_base::{Acquired, LayerBase},
    sums::first_columns,
};

/// A drop-in for [`burn::nn::Linear`] that takes patches, and packed or streamed weights.
///
/// Over a dense resident layer `weight` and `bias` are that layer's own parameters, so Burn's visitors,
/// mappers and records see the same names, and editing them takes effect.
#[derive(Module, Debug)]
pub struct PatchedLinear {
    /// The Burn layer's own weight `[d_input, d_output]`; `None` when the base is packed or streamed.
    pub weight: Option<Param<Tensor<2>>>,
    /// The Burn layer's own bias `[d_output]`.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    frozen: Option<FrozenBase>,
    #[module(skip)]
    origin: Origin,
    #[module(skip)]
    state: LayerState,
}

/// What is known of the weight without it: where a frozen one computes, and what a Burn layer's was when it
/// was taken over, for the case that somebody has taken the parameter out.
#[derive(Clone, Debug)]
struct Origin {
    /// `[d_output, d_input]`.
    shape: [usize; 2],
    device: Device,
    has_open_input: bool,
}

/// How a forward pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Patches of a strength other than 0 are mounted: base output plus residuals.
    Patched,
    /// The weight is not on the input's device and is copied there for this pass.
    Moved,
    /// Weight or bias has another float dtype than the input: product and bias are computed in f32 and their
    /// sum is rounded once. Packed weights are decoded in any case, so there it is the bias that differs.
    Cast,
    /// Everything is in place: Burn's own layer in its own dtype, or the product on frozen weights, with f32
    /// sums that are rounded once.
    Native,
}

impl PatchedLinear {
    /// A layer over a frozen base. `device` is where it is meant to run.
    #[must_use]
    pub fn from_frozen(
        weight: FrozenWeight,
        has_bias: bool,
        device: Device,
        traffic: Arc<Traffic>,
    ) -> Self {
        let shape = weight.shape();
        Self {
            weight: None,
            bias: None,
            frozen: Some(FrozenBase { weight, has_bias }),
            origin: Origin {
                shape,
                device,
                has_open_input: false,
            },
            state: LayerState::with_traffic(traffic),
        }
    }

    /// A layer over a weight `[d_output, d_input]` and bias `[d_output]` that are in place.
    #[must_use]
    pub fn from_weights(weight: Weight, bias: Option<Tensor<1>>, device: Device) -> Self {
        let has_bias = bias.is_some();
        let weights = FrozenWeight::Resident(Arc::new(LayerWeights { weight, bias }));
        Self::from_frozen(weights, has_bias, device, Arc::default())
    }

    /// The same layer, whose input comes from the model's caller: a control patch may read more columns of it
    /// than the base. Base and other patches get the first columns.
    #[must_use]
    pub fn with_open_input(mut self) -> Self {
        self.origin.has_open_input = true;
        self
    }

    /// Input width that a forward pass asks for: the base's, or that of the widest patch with an effect where
    /// the input is open.
    #[must_use]
    pub fn d_input(&self) -> usize {
        let (shape, merged) = (self.layer_shape(), self.state.merged.as_ref());
        let base = merged.map_or(shape.d_input(), |merged| merged.weight.shape()[1]);
        if !shape.has_open_input() {
            return base;
        }
        let sidecars = self.state.patches.sidecars();
        let widths = sidecars.map(|mounted| mounted.patch().d_input(&shape));
        widths.fold(base, usize::max)
    }

    /// Output width.
    #[must_use]
    pub fn d_output(&self) -> usize {
        self.weight_shape()[0]
    }

    /// Applies the layer, `[..., d_input] -> [..., d_output]`, in the input's dtype on its device.
    ///
    /// # Panics
    /// Where [`try_forward`](Self::try_forward) would answer an error.
    #[must_use]
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        value_or_panic(self.try_forward(input))
    }

    /// Applies the layer, `[..., d_input] -> [..., d_output]`, in the input's dtype on its device.
    ///
    /// A streamed weight is leased for the whole call, while rayon runs the product. Passes must not be
    /// started from tasks of the same rayon pool: a thread that waits for the product may take up such a
    /// task, which then waits for room that this thread's own lease holds.
    ///
    /// # Errors
    /// [`Error::InputWidth`], [`Error::AutocastOff`], [`Error::Stream`] when a streamed weight cannot be
    /// loaded, [`Error::NotStarted`] before [`LayerLoader::finish`](crate::LayerLoader::finish),
    /// [`Error::NoWeight`], [`Error::Patch`] when a patch needs values the base cannot give.
    pub fn try_forward<const D: usize>(&self, input: Tensor<D>) -> Result<Tensor<D>, Error> {
        let (dims, [d_output, d_input]) = (input.dims(), [self.d_output(), self.d_input()]);
        if dims[D - 1] != d_input {
            return Err(Error::InputWidth {
                found: dims[D - 1],
                expected: d_input,
            });
        }
        let mut output_dims = dims;
        output_dims[D - 1] = d_output;
        let num_rows = dims[..D - 1].iter().product::<usize>();
        // Also kept from Burn's own product: Flex 0.22.1 reads outside its buffers without rows.
        if num_rows == 0 {
            let place = (&input.device(), input.dtype());
            return Ok(Tensor::zeros(output_dims, place));
        }
        if let Some(weight) = self.base().native_weight(&input.device(), input.dtype()) {
            let bias = self.bias.as_ref().map(Param::val);
            return Ok(burn::tensor::module::linear(input, weight, bias));
        }
        let output = self.forward_rows(input.reshape([num_rows, d_input]))?;
        Ok(output.reshape(output_dims))
    }

    /// The path a forward pass with an input of `dtype` on `device` would take.
    ///
    /// # Errors
    /// [`Error::Stream`] when a streamed weight cannot be loaded, [`Error::NotStarted`], [`Error::NoWeight`].
    pub fn path(&self, device: &Device, dtype: DType) -> Result<Path, Error> {
        self.base().path(device, dtype)
    }

    /// The Burn layer underneath, sharing its parameters.
    ///
    /// # Errors
    /// [`Error::StillMounted`] while patches are on the layer, [`Error::StillMerged`] while something is
    /// merged, [`Error::NotABurnLayer`] when the base is packed or streamed, [`Error::NoWeight`].
    pub fn into_inner(self) -> Result<Linear, Error> {
        self.base().check_burn()?;
        let weight = self.weight.ok_or(Error::NoWeight)?;
        Ok(dense::linear_of(weight, self.bias))
    }

    fn forward_rows(&self, input: Tensor<2>) -> Result<Tensor<2>, Error> {
        let (device, dtype) = (input.device(), input.dtype());
        let (base, shape) = (self.base(), self.layer_shape());
        let current = base.acquire_for(&device)?;
        let input = dense::cast(input, DType::F32);
        let applies_itself = |patch: &dyn Patch| {
            let row = input.clone().slice_dim(0, 0..1);
            let row = first_columns(&row, patch.d_input(&shape));
            patch.sidecar_linear(row).is_some()
        };
        let residual = base.residual(&device, &shape, &current, applies_itself)?;
        // Before the base's product, which may then consume the input.
        let terms = residual.map(|residual| residual.linear(&input, &shape));
        let output = affine(&current, input, &self.state.traffic);
        let output = match terms {
            Some(terms) => terms.add_to(output),
            None => output,
        };
        Ok(dense::cast(output, dtype))
    }

    fn base(&self) -> LayerBase<'_, 2> {
        LayerBase {
            weight: self.weight.as_ref(),
            bias: self.bias.as_ref(),
            frozen: self.frozen.as_ref(),
            home: &self.origin.device,
            state: &self.state,
            as_rows: dense::as_rows_of,
        }
    }
}

impl From<Linear> for PatchedLinear {
    /// Takes a Burn layer over, sharing its parameters.
    fn from(linear: Linear) -> Self {
        let (weight, bias) = dense::params_of(linear);
        let origin = Origin {
            shape: dense::logical_shape(&weight),
            device: weight.lazy_device(),
            has_open_input: false,
        };
        Self {
            weight: Some(weight),
            bias,
            frozen: None,
            origin,
            state: LayerState::default(),
        }
    }
}

impl PatchedLayer for PatchedLinear {
    fn state(&self) -> &LayerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut LayerState {
        &mut self.state
    }

    fn layer_shape(&self) -> LayerShape {
        let weight = self.weight.as_ref();
        let [d_output, d_input] = weight.map_or(self.origin.shape, dense::logical_shape);
        let shape = LayerShape::linear(d_output, d_input);
        match self.origin.has_open_input {
            true => shape.with_open_input(),
            false => shape,
        }
    }

    fn has_bias(&self) -> bool {
        self.base().has_bias()
    }

    fn device(&self) -> Device {
        self.base().device()
    }

    fn acquire_base(&self) -> Result<WeightRef, Error> {
        self.base().acquire_base()
    }

    fn frozen(&self) -> Option<&FrozenWeight> {
        self.base().frozen()
    }
}

/// `input · Wᵀ + b` of an f32 input, wherever the parameters are, on the input's device in f32. What patches had
/// copied there already is not copied again.
fn affine(current: &Acquired, wide: Tensor<2>, traffic: &Traffic) -> Tensor<2> {
    let (device, weight) = (wide.device(), &current.weights.weight);
    let input = first_columns(&wide, weight.shape()[1]);
    drop(wide);
    let copy = current.known_dense();
    let output = match copy.filter(|_| weight.needs_move(&device)) {
        Some(weight) => dense::product(input, weight.clone().transpose()),
        None => weight.linear(input, traffic),
    };
    match current.bias(&device, traffic) {
        Some(bias) => output + bias.clone().unsqueeze(),
        None => output,
    }
}
