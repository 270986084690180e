//! A frozen base weight: in place for good, or leased from a streamer for one forward pass.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use burn::tensor::{Device, FloatDType, Tensor};
use overglaze_stream::{Lease, Streamer};

use crate::{Error, LayerSpec, LoadedLayer, Traffic, Weight, dense};

/// The parameters of one layer, in place.
#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// Weight `[d_output, d_input]`.
    pub weight: Weight,
    /// Bias `[d_output]`.
    pub bias: Option<Tensor<1>>,
}

impl LayerWeights {
    /// The values in f32 on `device`: weight `[d_output, fan_in]` and bias `[d_output]`.
    pub(crate) fn values(
        &self,
        device: &Device,
        traffic: &Traffic,
    ) -> (Tensor<2>, Option<Tensor<1>>) {
        let bias = self.bias.clone();
        let bias = bias.map(|bias| dense::values(bias, device, traffic));
        (self.weight.to_dense(device, FloatDType::F32, traffic), bias)
    }
}

/// The frozen base of a layer that has a weight matrix.
#[derive(Clone, Debug)]
pub(crate) struct FrozenBase {
    pub(crate) weight: FrozenWeight,
    pub(crate) has_bias: bool,
}

/// Where the frozen parameters of a layer are.
#[derive(Clone)]
pub enum FrozenWeight {
    /// In place as long as the layer lives; clones of the layer share them.
    Resident(Arc<LayerWeights>),
    /// The same, over the bytes of a source.
    Loaded(Arc<LoadedLayer>),
    /// In a streamer, which has them in place while a lease lives.
    Streamed(StreamedWeight),
}

/// A place in a model's streamer.
#[derive(Clone, Debug)]
pub struct StreamedWeight {
    pub(crate) streamer: Arc<OnceLock<Arc<Streamer<LayerSpec>>>>,
    pub(crate) index: usize,
    pub(crate) shape: [usize; 2],
    /// Names of the formats of weight and bias.
    pub(crate) formats: [&'static str; 2],
    /// The weight can be decoded.
    pub(crate) shows_values: bool,
}

impl FrozenWeight {
    /// Logical shape `[d_output, d_input]`; nothing is loaded to tell it.
    #[must_use]
    pub fn shape(&self) -> [usize; 2] {
        match self {
            Self::Resident(weights) => weights.weight.shape(),
            Self::Loaded(layer) => layer.weights.weight.shape(),
            Self::Streamed(streamed) => streamed.shape,
        }
    }

    /// Has the parameters in place until the answer is dropped.
    ///
    /// # Errors
    /// [`Error::Stream`] when they cannot be loaded, [`Error::NotStarted`] before
    /// [`LayerLoader::finish`](crate::LayerLoader::finish).
    pub fn acquire(&self) -> Result<WeightRef, Error> {
        match self {
            Self::Resident(weights) => Ok(WeightRef::Shared(Arc::clone(weights))),
            Self::Loaded(layer) => Ok(WeightRef::Loaded(Arc::clone(layer))),
            Self::Streamed(streamed) => {
                let streamer = streamed.streamer.get().ok_or(Error::NotStarted)?;
                let lease = streamer.acquire(streamer.slot_id(streamed.index))?;
                Ok(WeightRef::Leased(lease))
            }
        }
    }

    /// Names of the formats weight and bias are stored in; an empty one for no bias.
    pub(crate) fn formats(&self) -> [&'static str; 2] {
        match self {
            Self::Resident(weights) => {
                let bias = weights.bias.as_ref().map(|bias| bias.dtype().name());
                [weights.weight.format_name(), bias.unwrap_or_default()]
            }
            Self::Loaded(layer) => layer.formats,
            Self::Streamed(streamed) => streamed.formats,
        }
    }

    /// Whether the weight can be decoded, and not only be multiplied with.
    pub(crate) fn shows_values(&self) -> bool {
        match self {
            Self::Resident(weights) => weights.weight.shows_values(),
            Self::Loaded(layer) => layer.weights.weight.shows_values(),
            Self::Streamed(streamed) => streamed.shows_values,
        }
    }

    /// The parameters, where they are in place for good.
    pub(crate) fn in_place(&self) -> Option<&LayerWeights> {
        match self {
            Self::Resident(weights) => Some(weights),
            Self::Loaded(layer) => Some(&layer.weights),
            Self::Streamed(_) => None,
        }
    }
}

impl fmt::Debug for FrozenWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self {
            Self::Resident(_) | Self::Loaded(_) => "resident",
            Self::Streamed(_) => "streamed",
        };
        write!(f, "FrozenWeight({place}, {:?})", self.shape())
    }
}

/// Parameters that stay in place while this lives.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack for one forward pass; a box would allocate in every pass"
)]
pub enum WeightRef {
    /// Assembled for this use from Burn parameters (shared tensors, no copy).
    Owned(LayerWeights),
    /// Shared with every clone of the layer.
    Shared(Arc<LayerWeights>),
    /// The same, over the bytes of a source.
    Loaded(Arc<LoadedLayer>),
    /// Leased from a streamer.
    Leased(Lease<LayerSpec>),
}

impl WeightRef {
    /// Hands the bytes to `visit`, the weight's first: as the source stores them where there is one.
    pub(crate) fn visit_bytes(&self, visit: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Loaded(layer) => layer.stored().for_each(visit),
            Self::Leased(lease) => lease.stored().for_each(visit),
            Self::Owned(_) | Self::Shared(_) => self.visit_values(visit),
        }
    }

    fn visit_values(&self, visit: &mut dyn FnMut(&[u8])) {
        match &self.weight {
            Weight::Packed(weight) => weight.parts().iter().for_each(|part| visit(&part.bytes)),
            Weight::Dense(weight) => visit(weight.to_data().as_bytes()),
        }
        if let Some(bias) = &self.bias {
            visit(bias.to_data().as_bytes());
        }
    }
}

impl Deref for WeightRef {
    type Target = LayerWeights;

    fn deref(&self) -> &LayerWeights {
        match self {
            Self::Owned(weights) => weights,
            Self::Shared(weights) => weights,
            Self::Loaded(layer) => &layer.weights,
            Self::Leased(lease) => &lease.weights,
        }
    }
}

impl fmt::Debug for WeightRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeightRef({:?})", self.weight.shape())
    }
}
