//! What the patches of one layer add to it, summed: computed from the mounted set, kept until the set changes.
//!
//! Thin factors of all patches are joined into one pair, so that any number of low-rank patches costs two
//! narrow products; patches with a sidecar of their own keep it; the others are summed into one ΔW. ΔW and
//! joined factors stay until the mounted set changes, as long as the layer's [`CacheRoom`] has room for them;
//! without room they are computed for every forward pass, with the same result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::{
    module::ParamId,
    tensor::{Device, Tensor},
};
use overglaze_patches::{
    BaseAccess, BaseLayer, ConvInput, Feature, LayerShape, LowRank, Patch, tensor_bytes,
};
use overglaze_quant::add_product;

use crate::{
    Error, PatchStack,
    cache_room::{CacheRoom, Place},
    sums::{accumulate, add_feature, add_widened, first_columns, joined, scaled},
};

/// A patch and the factor on its residual.
pub(crate) type Summand = (Arc<dyn Patch>, f32);

/// Which of the base's parameters patches ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BaseNeeds {
    /// Some patch reads the weight's values.
    pub(crate) weight: bool,
    /// Some patch changes the bias, and may read it.
    pub(crate) bias: bool,
}

/// The base's parameters as far as patches asked for them, in f32 on the device the residual is for.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseValues {
    /// `[d_output, fan_in]`; there when the weight was asked for.
    pub(crate) weight: Option<Tensor<2>>,
    /// `[d_output]`; `None` when the base has none, or nobody asked.
    pub(crate) bias: Option<Tensor<1>>,
}

/// What a residual is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResidualPlace<'a> {
    /// Where it is to be.
    pub(crate) device: &'a Device,
    /// The layer.
    pub(crate) shape: &'a LayerShape,
    /// Where it may be kept.
    pub(crate) room: &'a CacheRoom,
    /// The Burn parameters it reads: with other ones in their place it is another residual.
    pub(crate) params: Params,
}

/// A Burn layer's weight and bias; a frozen base has none, and never changes.
pub(crate) type Params = [Option<ParamId>; 2];

/// The summed residual of a stack on one device, in f32.
#[derive(Debug, Default)]
pub(crate) struct Residual {
    /// The thin factors of all patches that have them, strengths included.
    pub(crate) low_rank: Option<LowRank>,
    /// Patches that apply themselves, with the factors on their output: those that had a sidecar on one row of the
    /// layer's input, which they have then on every input of the layer.
    pub(crate) sidecars: Vec<Summand>,
    /// ΔW `[d_output, fan_in]` of the other patches.
    pub(crate) weight: Option<Tensor<2>>,
    /// Δb `[d_output]` of all patches.
    pub(crate) bias: Option<Tensor<1>>,
}

/// The residual a forward pass made last, for the next one. Clones share it until one of them changes its
/// patches: that one starts anew and leaves the others theirs. A Burn parameter that is replaced makes another
/// residual; one that keeps its identity and gets other values, as a mapper may give it, is not noticed before
/// the mounted set changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache {
    kept: Arc<Mutex<Option<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    device: Device,
    params: Params,
    residual: Arc<Residual>,
    #[expect(dead_code, reason = "it is held so that the room is taken")]
    place: Place,
}

impl Cache {
    /// Forgets what was kept; clones keep it.
    pub(crate) fn clear(&mut self) {
        self.kept = Arc::default();
    }

    /// Bytes of what is kept.
    pub(crate) fn num_bytes(&self) -> usize {
        self.kept()
            .as_ref()
            .map_or(0, |kept| kept.residual.num_bytes())
    }

    fn get(&self, place: &ResidualPlace<'_>) -> Option<Arc<Residual>> {
        let kept = self.kept();
        let fits = |kept: &&Kept| kept.device == *place.device && kept.params == place.params;
        let kept = kept.as_ref().filter(fits)?;
        Some(Arc::clone(&kept.residual))
    }

    fn keep(&self, place: &ResidualPlace<'_>, residual: &Arc<Residual>) {
        let mut kept = self.kept();
        *kept = None;
        if let Some(room) = place.room.take(residual.num_bytes()) {
            *kept = Some(Kept {
                device: place.device.clone(),
                params: place.params,
                residual: Arc::clone(residual),
                place: room,
            });
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PatchStack {
    /// The stack's residual at `place`. `applies_itself` tells, on the input at hand,
    /// whether a patch without thin factors has a sidecar; `base` is called at most once, and only when
    /// something has to be computed.
    pub(crate) fn residual(
        &self,
        place: ResidualPlace<'_>,
        applies_itself: impl Fn(&dyn Patch) -> bool,
        base: impl FnOnce(BaseNeeds) -> Result<BaseValues, Error>,
    ) -> Result<Arc<Residual>, Error> {
        if let Some(residual) = self.cache.get(&place) {
            return Ok(residual);
        }
        let patches = self.sidecar_summands(place.device);
        let residual = Residual::of(&patches, place.shape, applies_itself, base)?;
        let residual = Arc::new(residual);
        self.cache.keep(&place, &residual);
        Ok(residual)
    }

    /// Δb of the sidecars on `device`.
    pub(crate) fn bias_delta(
        &self,
        device: &Device,
        shape: &LayerShape,
        base: impl FnOnce(BaseNeeds) -> Result<BaseValues, Error>,
    ) -> Result<Option<Tensor<1>>, Error> {
        Residual::bias(&self.sidecar_summands(device), shape, base)
    }

    /// The whole residual on the parameters themselves, on `device`: ΔW and Δb and nothing else.
    pub(crate) fn delta(
        &self,
        device: &Device,
        shape: &LayerShape,
        base: impl FnOnce(BaseNeeds) -> Result<BaseValues, Error>,
    ) -> Result<Residual, Error> {
        Residual::dense(&self.sidecar_summands(device), shape, base)
    }
}

impl Residual {
    /// ΔW and Δb of `patches`, and nothing else.
    pub(crate) fn dense(
        patches: &[Summand],
        shape: &LayerShape,
        base: impl FnOnce(BaseNeeds) -> Result<BaseValues, Error>,
    ) -> Result<Self, Error> {
        let mut residual = Self::default();
        residual.add_dense(patches, patches, shape, base)?;
        Ok(residual)
    }

    /// Δb of `patches`.
    pub(crate) fn bias(
        patches: &[Summand],
        shape: &LayerShape,
        base: impl FnOnce(BaseNeeds) -> Result<BaseValues, Error>,
    ) -> Result<Option<Tensor<1>>, Error> {
        let mut residual = Self::default();
        residual.add_dense(&[], patches, shape, base)?;
        Ok(residual.bias)
    }

    fn of(
        patches: &[Summand],
        shape: &LayerShape,
        applies_itself: impl Fn(&dyn Patch) -> bool,
        base: impl FnOnce(BaseNeeds) -> Result<BaseValues, Error>,
    ) -> Result<Self, Error> {
        let mut residual = Self::default();
        let (mut factors, mut dense) = (Vec::new(), Vec::new());
        for (patch, strength) in patches {
            // Grouped convolutions see a part of the input in each group: there the factors mean their product.
            match patch.low_rank().filter(|_| shape.groups() == 1) {
                Some(low_rank) => factors.push((low_rank, *strength)),
                None if applies_itself(&**patch) => {
                    residual.sidecars.push((Arc::clone(patch), *strength));
                }
                None => dense.push((Arc::clone(patch), *strength)),
            }
        }
        residual.low_rank = joined(factors);
        residual.add_dense(&dense, patches, shape, base)?;
        Ok(residual)
    }

    /// Adds ΔW of `dense` and Δb of `all`.
    fn add_dense(
        &mut self,
        dense: &[Summand],
        all: &[Summand],
        shape: &LayerShape,
        base: impl FnOnce(BaseNeeds) -> Result<BaseValues, Error>,
    ) -> Result<(), Error> {
        let changes_bias = all.iter().any(|(patch, _)| patch.changes_bias());
        if dense.is_empty() && !changes_bias {
            return Ok(());
        }
        let mut asking = dense
            .iter()
            .chain(all.iter().filter(|(patch, _)| patch.changes_bias()));
        let needs = BaseNeeds {
            weight: asking.any(|(patch, _)| patch.base_access() == BaseAccess::Weight),
            bias: changes_bias,
        };
        let BaseValues { weight, bias } = base(needs)?;
        let layer = BaseLayer {
            shape,
            weight: weight.as_ref(),
            bias: bias.as_ref(),
        };
        for (patch, strength) in dense {
            if let Some(weight) = patch.delta_weight(&layer)? {
                add_widened(&mut self.weight, scaled(weight, *strength));
            }
        }
        self.bias = sum_of_biases(all, &layer)?;
        Ok(())
    }

    /// The terms of `input · ΔWᵀ + Δb` `[rows, d_output]`, to be added to the base's product; the input may have
    /// more columns than a patch reads.
    pub(crate) fn linear(&self, input: &Tensor<2>, shape: &LayerShape) -> LinearTerms {
        let narrow = self.low_rank.as_ref().map(|LowRank { up, down }| {
            let input = first_columns(input, down.dims()[1]);
            (input.matmul(down.clone().transpose()), up.clone())
        });
        let mut wide = None;
        for (patch, strength) in &self.sidecars {
            let input = first_columns(input, patch.d_input(shape));
            let term = patch.sidecar_linear(input).expect(HAS_SIDECAR);
            accumulate(&mut wide, scaled(term, *strength));
        }
        if let Some(weight) = &self.weight {
            let input = first_columns(input, weight.dims()[1]);
            accumulate(&mut wide, input.matmul(weight.clone().transpose()));
        }
        LinearTerms {
            narrow,
            wide,
            bias: self.bias.clone(),
        }
    }

    /// The convolution of `input` with ΔW, without Δb.
    pub(crate) fn conv(&self, input: &ConvInput, shape: &LayerShape) -> Option<Feature> {
        let kernel = shape.kernel();
        let mut output = None;
        if let Some(LowRank { up, down }) = &self.low_rank {
            let narrow = input.convolve(down.clone(), kernel, 1);
            add_feature(&mut output, narrow.pointwise(up.clone()));
        }
        for (patch, strength) in &self.sidecars {
            let term = patch.sidecar_conv(input).expect(HAS_SIDECAR);
            add_feature(&mut output, term.scaled(*strength));
        }
        if let Some(weight) = &self.weight {
            let term = input.convolve(weight.clone(), kernel, shape.groups());
            add_feature(&mut output, term);
        }
        output
    }

    fn num_bytes(&self) -> usize {
        let factors = self.low_rank.as_ref();
        let factors = factors.map_or(0, |f| tensor_bytes(&f.up) + tensor_bytes(&f.down));
        let weight = self.weight.as_ref().map_or(0, tensor_bytes);
        factors + weight + self.bias.as_ref().map_or(0, tensor_bytes)
    }
}

/// What a residual adds to a product `[rows, d_output]`.
#[derive(Debug)]
pub(crate) struct LinearTerms {
    /// `input · downᵀ` `[rows, rank]` and `up` `[d_output, rank]`.
    narrow: Option<(Tensor<2>, Tensor<2>)>,
    /// `[rows, d_output]`.
    wide: Option<Tensor<2>>,
    /// `[d_output]`.
    bias: Option<Tensor<1>>,
}

impl LinearTerms {
    /// `output` with every term added.
    pub(crate) fn add_to(self, mut output: Tensor<2>) -> Tensor<2> {
        if let Some((narrow, up)) = self.narrow {
            output = add_product(output, narrow, up);
        }
        if let Some(wide) = self.wide {
            output = output + wide;
        }
        match self.bias {
            Some(bias) => output + bias.unsqueeze(),
            None => output,
        }
    }
}

fn sum_of_biases(patches: &[Summand], layer: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, Error> {
    let mut sum = None;
    for (patch, strength) in patches.iter().filter(|(patch, _)| patch.changes_bias()) {
        if let Some(bias) = patch.delta_bias(layer)? {
            accumulate(&mut sum, scaled(bias, *strength));
        }
    }
    Ok(sum)
}

/// A term that is left out would be a wrong image without a word.
const HAS_SIDECAR: &str =
    "a patch that has a sidecar on one row has one on every input of its layer";
