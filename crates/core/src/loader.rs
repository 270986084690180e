//! Building layers over a weight source: nothing is allocated for a parameter before it is wanted.
//!
//! Without a budget on a host device the layers read the mapped file in place. Under a budget, or on a
//! device with memory of its own, they lease their weights from one streamer.

use std::sync::{Arc, OnceLock};

use burn::tensor::{DType, Device, Tensor};
use overglaze_quant::{FoundWeight, kernels::is_host};
use overglaze_stream::{Streamable, Streamer, StreamerConfig, WeightSource};

use crate::{
    Error, FrozenWeight, LayerSpec, LayerState, PatchedLayer, PatchedLinear, StreamedWeight,
    Traffic, cache_room::CacheRoom, layer_spec::Form, source_tensor, tensor_spec::TensorSpec,
};

/// Where layers run and how many bytes their weights may take there.
#[derive(Clone, Debug)]
pub struct LoaderConfig {
    /// Execution device.
    pub device: Device,
    /// Bytes of weights in place at once; `None` keeps all of them in place. On a device with memory of its
    /// own these are the bytes there, and the stored bytes stay in host memory beside them.
    pub budget_bytes: Option<u64>,
    /// Layers loaded ahead of the one that computes, at most.
    pub lookahead: usize,
    /// Overwrites freed slots with garbage, to prove that nothing reads them any more.
    pub poison_released: bool,
}

impl LoaderConfig {
    /// Everything in place on `device`.
    #[must_use]
    pub fn resident(device: Device) -> Self {
        Self {
            device,
            budget_bytes: None,
            lookahead: 4,
            poison_released: false,
        }
    }

    /// Weights streamed through at most `budget_bytes` on `device`.
    #[must_use]
    pub fn streamed(device: Device, budget_bytes: u64) -> Self {
        Self {
            budget_bytes: Some(budget_bytes),
            ..Self::resident(device)
        }
    }
}

/// Builds the layers of one model, in the order they run.
#[derive(Debug)]
pub struct LayerLoader {
    source: Arc<dyn WeightSource>,
    config: LoaderConfig,
    traffic: Arc<Traffic>,
    specs: Vec<LayerSpec>,
    streamer: Arc<OnceLock<Arc<Streamer<LayerSpec>>>>,
    room: CacheRoom,
    num_bytes: u64,
}

/// What a loaded model keeps beside its layers.
#[derive(Clone, Debug)]
pub struct BaseWeights {
    /// Where the weights come from.
    pub source: Arc<dyn WeightSource>,
    /// The streamer, when weights are streamed.
    pub streamer: Option<Arc<Streamer<LayerSpec>>>,
    /// Counters of base bytes written and moved.
    pub traffic: Arc<Traffic>,
    /// Bytes of all weights and biases as stored.
    pub num_bytes: u64,
}

impl LayerLoader {
    /// A loader over `source`.
    #[must_use]
    pub fn new(source: Arc<dyn WeightSource>, config: LoaderConfig) -> Self {
        Self {
            source,
            config,
            traffic: Arc::default(),
            specs: Vec::new(),
            streamer: Arc::default(),
            room: CacheRoom::default(),
            num_bytes: 0,
        }
    }

    /// The source.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn WeightSource> {
        &self.source
    }

    /// Execution device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.config.device
    }

    /// Counters the layers share.
    #[must_use]
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// The linear layer over `<path>.weight` `[d_output, d_input]` and, when the source has it,
    /// `<path>.bias` `[d_output]`. Layers run in the order of these calls.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::WrongShape`], [`Error::Quant`], [`Error::NoValues`] or [`Error::Stream`].
    pub fn linear(&mut self, path: &str) -> Result<PatchedLinear, Error> {
        let weight = self.matrix(&format!("{path}.weight"))?;
        let bias_name = format!("{path}.bias");
        let bias = match self.source.entries().contains_key(&bias_name) {
            true => Some(self.row(&bias_name, Some(weight.shape[0]))?),
            false => None,
        };
        let has_bias = bias.is_some();
        let frozen = self.freeze(path, weight, bias)?;
        let (device, traffic) = (self.config.device.clone(), Arc::clone(&self.traffic));
        let mut linear = PatchedLinear::from_frozen(frozen, has_bias, device, traffic);
        *linear.state_mut() = self.state();
        Ok(linear)
    }

    /// The tensor `tensor` `[n]` in f32 on the execution device.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::WrongShape`], [`Error::Quant`], [`Error::NoValues`] or [`Error::Stream`].
    pub fn vector(&mut self, tensor: &str) -> Result<Tensor<1>, Error> {
        let spec = self.row(tensor, None)?;
        self.in_place(&spec, DType::F32)
    }

    /// Starts streaming, where there is any; call it once every layer is built.
    ///
    /// # Errors
    /// [`Error::Stream`] when one layer alone is larger than the budget.
    pub fn finish(self) -> Result<BaseWeights, Error> {
        let streamer = if self.specs.is_empty() {
            None
        } else {
            Some(self.start()?)
        };
        match &streamer {
            Some(streamer) if self.config.budget_bytes.is_some() => {
                let largest = self.specs.iter().map(Streamable::num_bytes).max();
                let ledger = Arc::clone(streamer.ledger());
                self.room.count_in(ledger, largest.unwrap_or(0));
            }
            _ => self.room.limit_to(self.num_bytes),
        }
        Ok(BaseWeights {
            source: self.source,
            streamer,
            traffic: self.traffic,
            num_bytes: self.num_bytes,
        })
    }

    /// The values of a small tensor as a vector of `dtype` on the execution device, for good.
    pub(crate) fn in_place(&mut self, spec: &TensorSpec, dtype: DType) -> Result<Tensor<1>, Error> {
        self.num_bytes += spec.num_bytes() as u64;
        if !is_host(&self.config.device) {
            self.traffic.count_move(spec.num_values() * dtype.size());
        }
        spec.vector(spec.read(&*self.source)?, &self.config.device, dtype)
    }

    /// The state of a new layer.
    pub(crate) fn state(&self) -> LayerState {
        let mut state = LayerState::with_traffic(Arc::clone(&self.traffic));
        state.room = self.room.clone();
        state
    }

    /// Has the layer `path` read in place, or streamed.
    pub(crate) fn freeze(
        &mut self,
        path: &str,
        weight: TensorSpec,
        bias: Option<TensorSpec>,
    ) -> Result<FrozenWeight, Error> {
        let device = self.config.device.clone();
        let form = Form::of(&weight.packed(weight.read(&*self.source)?)?, &device);
        let weight = match form {
            Form::Packed | Form::Uploaded(_) => weight,
            Form::Dense(_) => weight.with_values()?,
        };
        let spec = LayerSpec {
            path: path.into(),
            weight,
            bias,
            form,
            device,
            traffic: Arc::clone(&self.traffic),
        };
        self.num_bytes += spec.weight.num_bytes() as u64;
        let bias = spec.bias.as_ref();
        self.num_bytes += bias.map_or(0, |bias| bias.num_bytes() as u64);
        if self.config.budget_bytes.is_none() && is_host(&self.config.device) {
            let weight = spec.weight.read(&*self.source)?;
            let bias = bias.map(|bias| bias.read(&*self.source)).transpose()?;
            return Ok(FrozenWeight::Loaded(Arc::new(spec.build(weight, bias)?)));
        }
        let streamed = StreamedWeight {
            streamer: Arc::clone(&self.streamer),
            index: self.specs.len(),
            shape: spec.weight.shape,
            formats: spec.formats(),
            shows_values: spec.weight.format.has_values(),
        };
        self.specs.push(spec);
        Ok(FrozenWeight::Streamed(streamed))
    }

    fn start(&self) -> Result<Arc<Streamer<LayerSpec>>, Error> {
        let config = StreamerConfig {
            budget_bytes: self.config.budget_bytes.unwrap_or(u64::MAX),
            lookahead: self.config.lookahead,
            poison_released: self.config.poison_released,
        };
        let streamer = Streamer::new(Arc::clone(&self.source), self.specs.clone(), config)?;
        Ok(Arc::clone(self.streamer.get_or_init(|| streamer)))
    }

    /// The matrix `name` `[d_output, d_input]`.
    pub(crate) fn matrix(&self, name: &str) -> Result<TensorSpec, Error> {
        let found = self.found(name)?;
        let &[d_output, d_input] = found.shape.as_slice() else {
            return Err(self.wrong_shape(name, &found.shape, "a matrix [d_output, d_input]"));
        };
        self.spec(name, found, [d_output, d_input])
    }

    /// The vector `name` of `length` values, or of any number.
    pub(crate) fn row(&self, name: &str, length: Option<usize>) -> Result<TensorSpec, Error> {
        let found = self.found(name)?;
        let &[count] = found.shape.as_slice() else {
            return Err(self.wrong_shape(name, &found.shape, "a vector"));
        };
        if let Some(length) = length.filter(|length| *length != count) {
            return Err(self.wrong_shape(name, &found.shape, format!("[{length}]")));
        }
        self.spec(name, found, [1, count])?.with_values()
    }

    /// The weight `found` under `name` as a matrix of `shape`. A streamed layer is checked here and not in the middle
    /// of a pass.
    pub(crate) fn spec(
        &self,
        name: &str,
        found: FoundWeight,
        shape: [usize; 2],
    ) -> Result<TensorSpec, Error> {
        TensorSpec::new(&*self.source, name, found, shape)
    }

    /// The weight whose main tensor is `name`.
    pub(crate) fn found(&self, name: &str) -> Result<FoundWeight, Error> {
        source_tensor::found(&*self.source, name)
    }

    pub(crate) fn wrong_shape(
        &self,
        name: &str,
        found: &[usize],
        expected: impl Into<String>,
    ) -> Error {
        source_tensor::wrong_shape(&*self.source, name, found, expected.into())
    }
}
