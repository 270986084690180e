//! `y = x · Wᵀ + b + Σ strengthᵢ · (x · ΔWᵢᵀ + Δbᵢ)`: a linear layer whose base is never rewritten.
//!
//! The four paths are those of `InvokeAI`'s custom modules: patched; the weight has to move; dtypes
//! differ; native, which is Burn's own layer. All but Burn's own compute in f32, whatever the input's dtype,
//! and round the sum once: a patch changes the output by its residual and by nothing else.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::Linear,
    tensor::{DType, Device, FloatDType, Tensor},
};

use crate::{
    Error, FrozenWeight, LayerState, LayerWeights, PatchedLayer, Traffic, Weight, WeightRef, dense,
    error::value_or_panic,
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
    frozen: Option<Frozen>,
    #[module(skip)]
    origin: Origin,
    #[module(skip)]
    state: LayerState,
}

/// A frozen base.
#[derive(Clone, Debug)]
struct Frozen {
    weight: FrozenWeight,
    has_bias: bool,
}

/// What is known of the weight without it: where a frozen one computes, and what a Burn layer's was when it
/// was taken over, for the case that somebody has taken the parameter out.
#[derive(Clone, Debug)]
struct Origin {
    /// `[d_output, d_input]`.
    shape: [usize; 2],
    device: Device,
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
            frozen: Some(Frozen { weight, has_bias }),
            origin: Origin { shape, device },
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

    /// Input width.
    #[must_use]
    pub fn d_input(&self) -> usize {
        self.weight_shape()[1]
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
        let (dims, [d_output, d_input]) = (input.dims(), self.weight_shape());
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
        if let Some(weight) = self.native_weight(&input) {
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
        if !self.state.patches.is_idle() {
            return Ok(Path::Patched);
        }
        Ok(path_of(&*self.acquire()?, device, dtype))
    }

    /// The Burn layer underneath, sharing its parameters.
    ///
    /// # Errors
    /// [`Error::StillMounted`] while patches are on the layer, [`Error::StillMerged`] while something is
    /// merged, [`Error::NotABurnLayer`] when the base is packed or streamed, [`Error::NoWeight`].
    pub fn into_inner(self) -> Result<Linear, Error> {
        self.state.check_bare()?;
        match (self.weight, self.frozen) {
            (Some(weight), _) => Ok(dense::linear_of(weight, self.bias)),
            (None, Some(_)) => Err(Error::NotABurnLayer),
            (None, None) => Err(Error::NoWeight),
        }
    }

    /// The Burn weight, when nothing has to be done but Burn's own product.
    fn native_weight<const D: usize>(&self, input: &Tensor<D>) -> Option<Tensor<2>> {
        let is_bare = self.state.patches.is_idle() && self.state.merged.is_none();
        let weight = self.weight.as_ref().filter(|_| is_bare)?.val();
        let (device, dtype) = (input.device(), input.dtype());
        let bias_fits = self.bias.as_ref().is_none_or(|bias| {
            let bias = bias.val();
            bias.device() == device && bias.dtype() == dtype
        });
        (bias_fits && weight.device() == device && weight.dtype() == dtype).then_some(weight)
    }

    fn forward_rows(&self, input: Tensor<2>) -> Result<Tensor<2>, Error> {
        let (device, dtype) = (input.device(), input.dtype());
        let base = self.acquire()?;
        let follows = self.state.autocast || !self.state.patches.is_idle();
        if !follows && path_of(&base, &device, dtype) == Path::Moved {
            return Err(autocast_off(&base, &device));
        }
        let input = dense::cast(input, DType::F32);
        let output = affine(&base, input.clone(), &self.state.traffic);
        let residual = self
            .state
            .patches
            .residual(&input, base.weight.shape(), || {
                self.base_weight(&base, &device)
            })?;
        let output = match residual {
            Some(residual) => output + residual,
            None => output,
        };
        Ok(dense::cast(output, dtype))
    }

    /// The parameters a forward pass multiplies with: the merged ones while a merge is in place.
    fn acquire(&self) -> Result<WeightRef, Error> {
        match &self.state.merged {
            Some(merged) => Ok(WeightRef::Shared(Arc::clone(merged))),
            None => self.acquire_base(),
        }
    }

    /// The parameters of a frozen base that is in place for good.
    fn in_place(&self) -> Option<&LayerWeights> {
        self.frozen.as_ref()?.weight.in_place()
    }

    fn acquire_base(&self) -> Result<WeightRef, Error> {
        if let Some(weight) = &self.weight {
            return Ok(WeightRef::Owned(LayerWeights {
                weight: Weight::Dense(dense::as_rows(weight)),
                bias: self.bias.as_ref().map(Param::val),
            }));
        }
        let frozen = self.frozen.as_ref().ok_or(Error::NoWeight)?;
        frozen.weight.acquire()
    }

    /// What patches are residuals against, in f32 on `device`: never the merged weight.
    fn base_weight(&self, current: &WeightRef, device: &Device) -> Result<Tensor<2>, Error> {
        let to_dense = |base: &WeightRef| {
            let weight = &base.weight;
            weight.to_dense(device, FloatDType::F32, &self.state.traffic)
        };
        match self.state.merged {
            Some(_) => Ok(to_dense(&self.acquire_base()?)),
            None => Ok(to_dense(current)),
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

    fn weight_shape(&self) -> [usize; 2] {
        let weight = self.weight.as_ref();
        weight.map_or(self.origin.shape, dense::logical_shape)
    }

    fn has_bias(&self) -> bool {
        self.bias.is_some() || self.frozen.as_ref().is_some_and(|frozen| frozen.has_bias)
    }

    fn is_resident(&self) -> bool {
        let frozen = self.frozen.as_ref();
        frozen.is_none_or(|frozen| frozen.weight.in_place().is_some())
    }

    fn base_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        let (base, traffic) = (self.acquire_base()?, &self.state.traffic);
        let bias = base.bias.clone();
        let bias = bias.map(|bias| dense::values(bias, device, traffic));
        let weight = base.weight.to_dense(device, FloatDType::F32, traffic);
        Ok((weight, bias))
    }

    fn device(&self) -> Device {
        let weight = self.weight.as_ref();
        weight.map_or_else(|| self.origin.device.clone(), Param::lazy_device)
    }

    fn base_dtype(&self) -> DType {
        if let Some(weight) = &self.weight {
            return weight.val().dtype();
        }
        let base = self.in_place();
        base.map_or(DType::F32, |base| {
            base.weight.dense_dtype(&self.origin.device)
        })
    }

    fn bias_dtype(&self) -> DType {
        let own = self.bias.as_ref().map(|bias| bias.val().dtype());
        let frozen = || Some(self.in_place()?.bias.as_ref()?.dtype());
        own.or_else(frozen).unwrap_or_else(|| self.base_dtype())
    }

    fn base_formats(&self) -> [&'static str; 2] {
        let frozen = self.frozen.as_ref().filter(|_| self.weight.is_none());
        match frozen.map(|frozen| &frozen.weight) {
            Some(weight) => weight.formats(),
            None => {
                let bias = self.bias.as_ref().map(|bias| bias.val().dtype().name());
                [self.base_dtype().name(), bias.unwrap_or_default()]
            }
        }
    }

    fn visit_base_bytes(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.acquire_base()?.visit_bytes(visit);
        Ok(())
    }
}

fn path_of(base: &LayerWeights, device: &Device, dtype: DType) -> Path {
    let bias = base.bias.as_ref();
    if base.weight.needs_move(device) || bias.is_some_and(|bias| bias.device() != *device) {
        return Path::Moved;
    }
    let differs = base.weight.needs_cast(dtype) || bias.is_some_and(|bias| bias.dtype() != dtype);
    if dtype.is_float() && differs {
        return Path::Cast;
    }
    Path::Native
}

/// `input · Wᵀ + b` of an f32 input, wherever the parameters are, on the input's device in f32.
fn affine(base: &LayerWeights, input: Tensor<2>, traffic: &Traffic) -> Tensor<2> {
    let device = input.device();
    let output = base.weight.linear(input, traffic);
    match &base.bias {
        Some(bias) => output + dense::values(bias.clone(), &device, traffic).unsqueeze(),
        None => output,
    }
}

fn autocast_off(base: &LayerWeights, device: &Device) -> Error {
    let weight = match &base.weight {
        Weight::Dense(weight) => format!("{:?}", weight.device()),
        Weight::Packed(weight) => format!("the host (packed as {})", weight.format().name()),
    };
    Error::AutocastOff {
        weight,
        input: format!("{device:?}"),
    }
}
