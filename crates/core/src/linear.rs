//! `y = x · Wᵀ + b + Σ strengthᵢ · (x · ΔWᵢᵀ + Δbᵢ)`: a linear layer whose base is never rewritten.
//!
//! The four paths are those of `InvokeAI`'s custom modules: patched; the weight has to move; dtypes
//! differ; native, which is Burn's own layer.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::Linear,
    tensor::{DType, Device, FloatDType, Tensor},
};

use crate::{
    Error, FrozenWeight, LayerState, LayerWeights, PatchedLayer, Traffic, Weight, WeightRef, dense,
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
    state: LayerState,
}

/// A frozen base and what is known of it without loading it.
#[derive(Clone, Debug)]
struct Frozen {
    weight: FrozenWeight,
    has_bias: bool,
    device: Device,
}

/// How a forward pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Patches of a strength other than 0 are mounted: base output plus residuals.
    Patched,
    /// The weight is not on the input's device and is copied there for this pass.
    Moved,
    /// Weight or bias has another float dtype than the input: the product runs in f32.
    Cast,
    /// Everything is in place: Burn's own layer, or the product on packed bytes.
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
        Self {
            weight: None,
            bias: None,
            frozen: Some(Frozen {
                weight,
                has_bias,
                device,
            }),
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
        match self.try_forward(input) {
            Ok(output) => output,
            Err(error) => panic!("{error}"),
        }
    }

    /// Applies the layer, `[..., d_input] -> [..., d_output]`, in the input's dtype on its device.
    ///
    /// # Errors
    /// [`Error::InputWidth`], [`Error::AutocastOff`], [`Error::Stream`] when a streamed weight cannot be
    /// loaded, [`Error::Patch`] when a patch needs values the base cannot give.
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
    /// [`Error::Stream`] when a streamed weight cannot be loaded.
    pub fn path(&self, device: &Device, dtype: DType) -> Result<Path, Error> {
        if !self.state.patches.is_idle() {
            return Ok(Path::Patched);
        }
        Ok(path_of(&*self.acquire()?, device, dtype))
    }

    /// The Burn layer underneath, sharing its parameters.
    ///
    /// # Errors
    /// [`Error::Mounted`] while patches are on the layer, [`Error::AlreadyMerged`] while something is
    /// merged, [`Error::NotABurnLayer`] when the base is packed or streamed.
    pub fn into_inner(self) -> Result<Linear, Error> {
        if !self.state.patches.is_empty() {
            return Err(Error::Mounted {
                operation: "`into_inner`",
                layer: "this layer".into(),
            });
        }
        if self.state.merged.is_some() {
            return Err(Error::AlreadyMerged {
                layer: "this layer".into(),
            });
        }
        let weight = self.weight.ok_or(Error::NotABurnLayer)?;
        Ok(dense::linear_of(weight, self.bias))
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
        if self.state.patches.is_idle() {
            if path_of(&base, &device, dtype) == Path::Moved && !self.state.autocast {
                return Err(self.autocast_off(&base, &device));
            }
            return Ok(affine(&base, input, &self.state.traffic));
        }
        let input = dense::cast(input, DType::F32);
        let output = affine(&base, input.clone(), &self.state.traffic);
        let shape = base.weight.shape();
        let residual = self.state.patches.residual(&input, shape, || {
            Ok::<_, Error>(
                self.unmerged(&base)?
                    .weight
                    .to_dense(&device, FloatDType::F32),
            )
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

    fn acquire_base(&self) -> Result<WeightRef, Error> {
        if let Some(weight) = &self.weight {
            return Ok(WeightRef::Owned(LayerWeights {
                weight: Weight::Dense(dense::as_rows(weight)),
                bias: self.bias.as_ref().map(Param::val),
            }));
        }
        self.frozen
            .as_ref()
            .expect("a layer has a Burn weight or a frozen one")
            .weight
            .acquire()
    }

    /// What patches are residuals against: never the merged weight.
    fn unmerged<'a>(
        &self,
        current: &'a WeightRef,
    ) -> Result<std::borrow::Cow<'a, LayerWeights>, Error> {
        if self.state.merged.is_none() {
            return Ok(std::borrow::Cow::Borrowed(current));
        }
        Ok(std::borrow::Cow::Owned((*self.acquire_base()?).clone()))
    }

    fn autocast_off(&self, base: &LayerWeights, device: &Device) -> Error {
        let weight = match &base.weight {
            Weight::Dense(weight) => format!("{:?}", weight.device()),
            Weight::Packed(weight) => format!("the host (packed as {})", weight.format().name()),
        };
        Error::AutocastOff {
            weight,
            input: format!("{device:?}"),
        }
    }
}

impl From<Linear> for PatchedLinear {
    /// Takes a Burn layer over, sharing its parameters.
    fn from(linear: Linear) -> Self {
        let (weight, bias) = dense::params_of(linear);
        Self {
            weight: Some(weight),
            bias,
            frozen: None,
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
        match (&self.weight, &self.frozen) {
            (Some(weight), _) => dense::logical_shape(weight),
            (None, Some(frozen)) => frozen.weight.shape(),
            (None, None) => unreachable!("a layer has a Burn weight or a frozen one"),
        }
    }

    fn has_bias(&self) -> bool {
        self.bias.is_some() || self.frozen.as_ref().is_some_and(|frozen| frozen.has_bias)
    }

    fn is_resident(&self) -> bool {
        !matches!(
            &self.frozen,
            Some(Frozen {
                weight: FrozenWeight::Streamed(_),
                ..
            })
        )
    }

    fn base_values(&self, device: &Device) -> Result<(Tensor<2>, Option<Tensor<1>>), Error> {
        let base = self.acquire_base()?;
        let bias = base
            .bias
            .clone()
            .map(|bias| dense::cast(dense::moved(bias, device), DType::F32));
        Ok((base.weight.to_dense(device, FloatDType::F32), bias))
    }

    fn device(&self) -> Device {
        match (&self.weight, &self.frozen) {
            (Some(weight), _) => weight.lazy_device(),
            (None, Some(frozen)) => frozen.device.clone(),
            (None, None) => unreachable!("a layer has a Burn weight or a frozen one"),
        }
    }

    fn base_dtype(&self) -> DType {
        match (&self.weight, &self.frozen) {
            (Some(weight), _) => weight.val().dtype(),
            (
                None,
                Some(Frozen {
                    weight: FrozenWeight::Resident(weights),
                    device,
                    ..
                }),
            ) => weights.weight.dense_dtype(device),
            _ => DType::F32,
        }
    }

    fn visit_base_bytes(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let base = self.acquire_base()?;
        match &base.weight {
            Weight::Packed(weight) => weight.parts().iter().for_each(|(_, bytes)| visit(bytes)),
            Weight::Dense(weight) => visit(weight.to_data().as_bytes()),
        }
        if let Some(bias) = &base.bias {
            visit(bias.to_data().as_bytes());
        }
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

/// `input · Wᵀ + b`, wherever the parameters are, on the input's device in its dtype.
fn affine(base: &LayerWeights, input: Tensor<2>, traffic: &Traffic) -> Tensor<2> {
    let (device, dtype) = (input.device(), input.dtype());
    let output = base.weight.linear(input, traffic);
    match &base.bias {
        Some(bias) => {
            let bias = dense::aligned(bias.clone(), &device, traffic);
            output + dense::cast(bias, dtype).unsqueeze()
        }
        None => output,
    }
}
