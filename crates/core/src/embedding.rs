//! `y = W[ids] + Σ strengthᵢ · ΔWᵢ[ids]`: a lookup of rows whose base is never rewritten.
//!
//! Only the rows looked up are read: of a packed weight each distinct row is decoded once, thin factors are the
//! rows of `up` times `down`. The weight is `[num_embeddings, d_model]`, Burn's own layout. The output has the
//! dtype of the dense weight, f32 for a packed one without such a dtype, as `PyTorch`'s has.

use std::{collections::BTreeMap, sync::Arc};

use burn::{
    module::{Module, Param},
    nn::{Embedding, EmbeddingConfig},
    tensor::{DType, Device, Int, Tensor, TensorData},
};
use overglaze_patches::{LayerShape, LowRank};
use overglaze_quant::QuantizedTensor;

use crate::{
    Error, FrozenWeight, LayerLimits, LayerState, LayerWeights, PatchedLayer, Path, Traffic,
    Weight, WeightRef, dense, error::value_or_panic, frozen::FrozenBase, layer_base::LayerBase,
    residual::Residual, sums::add_widened,
};

/// A drop-in for [`burn::nn::Embedding`] that takes patches, and packed or streamed weights.
///
/// Over a dense resident layer `weight` is that layer's own parameter, so Burn's visitors, mappers and records
/// see the same name, and editing it takes effect.
#[derive(Module, Debug)]
pub struct PatchedEmbedding {
    /// The Burn layer's own weight `[num_embeddings, d_model]`; `None` when the base is packed or streamed.
    pub weight: Option<Param<Tensor<2>>>,
    #[module(skip)]
    frozen: Option<FrozenBase>,
    #[module(skip)]
    origin: [usize; 2],
    #[module(skip)]
    home: Device,
    #[module(skip)]
    state: LayerState,
}

impl PatchedEmbedding {
    /// A layer over a weight `[num_embeddings, d_model]` that is in place.
    #[must_use]
    pub fn from_weight(weight: Weight, device: Device) -> Self {
        let weights = LayerWeights { weight, bias: None };
        let weight = FrozenWeight::Resident(Arc::new(weights));
        Self::from_frozen(weight, device, LayerState::default())
    }

    pub(crate) fn from_frozen(weight: FrozenWeight, home: Device, state: LayerState) -> Self {
        let (origin, has_bias) = (weight.shape(), false);
        Self {
            weight: None,
            frozen: Some(FrozenBase { weight, has_bias }),
            origin,
            home,
            state,
        }
    }

    /// Looks rows up, `[batch, length] -> [batch, length, d_model]`, on the device of the indices.
    ///
    /// # Panics
    /// Where [`try_forward`](Self::try_forward) would answer an error.
    #[must_use]
    pub fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        value_or_panic(self.try_forward(ids))
    }

    /// Looks rows up, `[batch, length] -> [batch, length, d_model]`, on the device of the indices.
    ///
    /// # Errors
    /// As [`try_rows`](Self::try_rows).
    pub fn try_forward(&self, ids: Tensor<2, Int>) -> Result<Tensor<3>, Error> {
        let ([batch, length], device) = (ids.dims(), ids.device());
        let num_ids = batch * length;
        // A zero in a shape to reshape to would mean "as it is".
        let ids = match num_ids {
            0 => Tensor::zeros([0], (&device, ids.dtype())),
            _ => ids.reshape([num_ids]),
        };
        let rows = self.try_rows(&ids)?;
        let output_dims = [batch, length, rows.dims()[1]];
        if output_dims.contains(&0) {
            return Ok(Tensor::zeros(output_dims, (&device, rows.dtype())));
        }
        Ok(rows.reshape(output_dims))
    }

    /// Looks rows up, `[num_ids] -> [num_ids, d_model]`, on the device of the indices; for indices of another
    /// rank, flattened.
    ///
    /// # Errors
    /// [`Error::IdOutside`], [`Error::AutocastOff`], [`Error::Stream`] when a streamed weight cannot be loaded,
    /// [`Error::NotStarted`] before [`LayerLoader::finish`](crate::LayerLoader::finish), [`Error::NoWeight`],
    /// [`Error::Patch`] when a patch needs values the base cannot give.
    pub fn try_rows(&self, ids: &Tensor<1, Int>) -> Result<Tensor<2>, Error> {
        let (device, [num_embeddings, d_model]) = (ids.device(), self.weight_shape());
        let wanted = checked_ids(ids, num_embeddings)?;
        let base = self.base();
        let current = base.acquire_for(&device)?;
        let dtype = current.weights.weight.dense_dtype(&device);
        if wanted.is_empty() || d_model == 0 {
            return Ok(Tensor::zeros([wanted.len(), d_model], (&device, dtype)));
        }
        let shape = self.layer_shape();
        let residual = base.residual(&device, &shape, &current, |_| false)?;
        let rows = match current.known_dense() {
            Some(weight) => weight.clone().select(0, ids.clone()),
            None => rows_of(&current.weights, (ids, &wanted), &self.state.traffic),
        };
        let term = residual.and_then(|residual| residual_rows(&residual, ids));
        let rows = match term {
            Some(term) => dense::cast(rows, DType::F32) + term,
            None => rows,
        };
        Ok(dense::cast(rows, dtype))
    }

    /// The path a lookup on `device` would take.
    ///
    /// # Errors
    /// [`Error::Stream`] when a streamed weight cannot be loaded, [`Error::NotStarted`], [`Error::NoWeight`].
    pub fn path(&self, device: &Device) -> Result<Path, Error> {
        // The output has the weight's dtype, so there is nothing to cast.
        self.base().path(device, DType::I64)
    }

    /// The Burn layer underneath, sharing its parameter.
    ///
    /// # Errors
    /// As [`PatchedLinear::into_inner`](crate::PatchedLinear::into_inner).
    pub fn into_inner(self) -> Result<Embedding, Error> {
        self.base().check_burn()?;
        let weight = self.weight.ok_or(Error::NoWeight)?;
        let [num_embeddings, d_model] = weight.lazy_shape().dims();
        let config = EmbeddingConfig::new(num_embeddings, d_model);
        let mut embedding = config.init(&weight.lazy_device());
        embedding.weight = weight;
        Ok(embedding)
    }

    fn base(&self) -> LayerBase<'_, 2> {
        LayerBase {
            weight: self.weight.as_ref(),
            bias: None,
            frozen: self.frozen.as_ref(),
            home: &self.home,
            state: &self.state,
            as_rows: dense::flattened,
        }
    }
}

impl From<Embedding> for PatchedEmbedding {
    /// Takes a Burn layer over, sharing its parameter.
    fn from(embedding: Embedding) -> Self {
        let weight = embedding.weight;
        Self {
            origin: weight.lazy_shape().dims(),
            home: weight.lazy_device(),
            weight: Some(weight),
            frozen: None,
            state: LayerState::default(),
        }
    }
}

impl PatchedLayer for PatchedEmbedding {
    fn state(&self) -> &LayerState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut LayerState {
        &mut self.state
    }

    fn layer_shape(&self) -> LayerShape {
        let weight = self.weight.as_ref();
        let [num_embeddings, d_model] =
            weight.map_or(self.origin, |weight| weight.lazy_shape().dims());
        LayerShape::embedding(num_embeddings, d_model)
    }

    fn limits(&self) -> LayerLimits {
        LayerLimits {
            takes_bias: false,
            shows_values: self.frozen().is_none_or(FrozenWeight::shows_values),
        }
    }

    fn has_bias(&self) -> bool {
        false
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

/// The indices as numbers of rows.
fn checked_ids(ids: &Tensor<1, Int>, num_embeddings: usize) -> Result<Vec<usize>, Error> {
    let ids = ids.to_data();
    ids.iter::<i64>()
        .map(|id| {
            let row = usize::try_from(id).ok().filter(|row| *row < num_embeddings);
            row.ok_or(Error::IdOutside { id, num_embeddings })
        })
        .collect()
}

/// The rows `ids` of the weight on their device, `[num_ids, d_model]`.
fn rows_of(
    weights: &LayerWeights,
    (ids, wanted): (&Tensor<1, Int>, &[usize]),
    traffic: &Traffic,
) -> Tensor<2> {
    let device = ids.device();
    match &weights.weight {
        Weight::Dense(weight) => {
            let ids = ids.clone().to_device(&weight.device());
            dense::aligned(weight.clone().select(0, ids), &device, traffic)
        }
        Weight::Packed(weight) => {
            traffic.count_decode();
            let rows = decoded_rows(weight, wanted);
            if weights.weight.needs_move(&device) {
                traffic.count_move(rows.as_bytes().len());
            }
            Tensor::from_data(rows, (&device, DType::F32))
        }
    }
}

/// The rows `wanted` of a packed matrix in f32; a row that is wanted often is decoded once.
fn decoded_rows(weight: &QuantizedTensor, wanted: &[usize]) -> TensorData {
    let width = weight.shape()[1];
    let mut places = BTreeMap::<usize, usize>::new();
    let mut values = vec![0.0_f32; wanted.len() * width];
    for (place, row) in wanted.iter().enumerate() {
        let start = place * width;
        if let Some(first) = places.get(row) {
            values.copy_within(first * width..(first + 1) * width, start);
            continue;
        }
        weight.decode_rows(*row..row + 1, &mut values[start..start + width]);
        places.insert(*row, place);
    }
    TensorData::new(values, [wanted.len(), width])
}

/// The rows `ids` of ΔW, `[num_ids, d_model]`.
fn residual_rows(residual: &Residual, ids: &Tensor<1, Int>) -> Option<Tensor<2>> {
    let mut sum = None;
    if let Some(LowRank { up, down }) = &residual.low_rank {
        add_widened(
            &mut sum,
            up.clone().select(0, ids.clone()).matmul(down.clone()),
        );
    }
    if let Some(weight) = &residual.weight {
        add_widened(&mut sum, weight.clone().select(0, ids.clone()));
    }
    sum
}
