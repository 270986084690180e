//! Low-rank Kronecker product.
//!
//! `ΔW = scale · w1 ⊗ w2`, seen as matrices: `w1 [a, b]`, `w2 [c, d, kernel…]`, ΔW `[a·c, b·d, kernel…]`. Either
//! is whole or a product of factors: `w1 = w1_a · w1_b`, `w2 = w2_a · w2_b`, or with `t2` between (Tucker, where
//! `w2_a` is `[rank, c]`): see [`Factors`].
//!
//! The scale is `alpha / rank` when there are factors (`rank` = rows of `w2_b`, else of `w1_b`). When both are
//! whole it is 1 and alpha is not read, as LyCORIS has it: trainers write any number there, infinity too.
//! PEFT scales by its configuration's `alpha / r` in any case.
//!
//! `ΔW · x = w2 · X · w1ᵀ` with `X` = `x` as a matrix `[b, d]`, so a forward pass needs no ΔW.
//!
//! Yeh et al., "Navigating Text-To-Image Customization", 2023, section 3.2; LyCORIS, `functional/lokr.py`; PEFT,
//! `tuners/lokr/layer.py`.

use std::sync::Arc;

use burn::tensor::{Device, FloatDType, Tensor, TensorData};

use crate::{
    BaseLayer, ConvInput, Feature, KindDocs, LayerShape, Patch, PatchError, PatchKind, TensorGroup,
    added::Added,
    axes::check_is_matrix,
    factors::{FactorKeys, Factors},
    sparse::{INDICES, SIZE, VALUES},
    values::Values,
};

inventory::submit! {
    PatchKind::new(
        KIND,
        &[
            &[W1, W2],
            &[W1, SECOND.up, SECOND.down],
            &[FIRST.up, FIRST.down, W2],
            &[FIRST.up, FIRST.down, SECOND.up, SECOND.down],
        ],
        load,
    )
    .with_optional(&[
        SECOND.mid, "alpha", "scale", INDICES, VALUES, SIZE,
    ])
    .with_peft_types(&["LOKR"])
    .with_docs(KindDocs {
        formula: "ΔW = scale · w1 ⊗ w2, w1 = w1_a · w1_b, w2 = w2_a · w2_b or t2 between; scale = alpha / rank, 1 \
                  when w1 and w2 are whole (PEFT: alpha / r in any case)",
        layers: "linear, convolution, embedding",
        strength: "proportional",
        source: "Yeh et al. 2023, \"LyCORIS\", section 3.2; LyCORIS, functional/lokr.py",
    })
}

#[derive(Clone, Debug)]
struct Lokr {
    /// `[a, b]`.
    first: Block,
    /// `[c, d · kernel]`.
    second: Block,
    /// Factor on their Kronecker product.
    scale: f32,
}

/// One side of the Kronecker product.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a patch has two of them")]
enum Block {
    Whole(Values),
    Product(Factors),
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let rank = [SECOND.down, FIRST.down]
        .iter()
        .find_map(|key| group.dims(key).first().copied());
    let bound = Block::bound(&group, W1, FIRST) * Block::bound(&group, W2, SECOND);
    let first = Block::take(&mut group, W1, FIRST, device)?;
    let second = Block::take(&mut group, W2, SECOND, device)?;
    let scale = take_scale(&mut group, rank)?;
    group.check_bound(bound, scale)?;
    let ([a, b], [c, d]) = (first.shape(), second.shape());
    let (Some(d_output), Some(fan_in)) = (a.checked_mul(c), b.checked_mul(d)) else {
        return Err(
            group.inconsistent("the Kronecker product has more elements than can be counted")
        );
    };
    let patch = Lokr {
        first,
        second,
        scale,
    };
    Added::scaled_sparse(
        Arc::new(patch),
        &mut group,
        [d_output, fan_in],
        scale,
        device,
    )
}

/// `rank` is that of the factors; `None` when both sides are whole.
fn take_scale(group: &mut TensorGroup, rank: Option<usize>) -> Result<f32, PatchError> {
    let config = group.config.clone().unwrap_or_default();
    let known = rank.or(config.rank).filter(|_| config.alpha.is_some());
    let from_config = known.and_then(|rank| Some((config.effective_alpha(rank)?, rank)));
    if rank.is_none() {
        let _ = group.tensors.remove("alpha");
    }
    if config.alpha.is_some() && from_config.is_none() {
        let why = "the configuration has an alpha and no rank `r`, expected both for factors that are whole";
        return Err(group.inconsistent(why));
    }
    if let Some((alpha, rank)) = from_config.filter(|_| !group.has("alpha") && !group.has("scale"))
    {
        let alpha = TensorData::from([alpha]);
        group.tensors.insert("alpha".into(), alpha);
        return group.take_scale(rank);
    }
    group.take_scale(rank.unwrap_or(1))
}

impl Patch for Lokr {
    fn kind(&self) -> &str {
        KIND
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        check_is_matrix(KIND, layer)?;
        let patch = self.shape();
        if patch != layer.matrix() {
            return Err(PatchError::DoesNotFit {
                kind: KIND.into(),
                patch,
                base: layer.dims().into(),
            });
        }
        let ([a, b], mut dims) = (self.first.shape(), self.second.dims());
        let fits = match dims.as_slice() {
            // Flattened: the kernel has to be the inner part of every column block.
            [_, columns] => columns % layer.kernel().iter().product::<usize>() == 0,
            [_, d, kernel @ ..] => b * d == layer.d_input() && is_kernel(kernel, layer),
            _ => true,
        };
        if fits {
            return Ok(());
        }
        for (size, factor) in dims.iter_mut().zip([a, b]) {
            *size *= factor;
        }
        Err(PatchError::OtherAxes {
            kind: KIND.into(),
            patch: dims,
            base: layer.dims().into(),
        })
    }

    fn delta_weight(&self, _base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let ([a, b], [c, d]) = (self.first.shape(), self.second.shape());
        let first = self.scaled_first().reshape([a, 1, b, 1]);
        let second = self.second.to_matrix().reshape([1, c, 1, d]);
        Ok(Some((first * second).reshape(self.shape())))
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        let ([a, b], [c, d]) = (self.first.shape(), self.second.shape());
        let num_rows = input.dims()[0];
        let columns = self.second.apply(input.reshape([num_rows * b, d]));
        let mixed = self
            .scaled_first()
            .unsqueeze::<3>()
            .matmul(columns.reshape([num_rows, b, c]));
        Some(mixed.reshape([num_rows, a * c]))
    }

    fn sidecar_conv(&self, input: &ConvInput) -> Option<Feature> {
        let ([_, parts], [_, d]) = (self.first.shape(), self.second.shape());
        let dims = self.second.dims();
        let is_flat = dims.len() == 2;
        let channels = input.feature().dims()[1];
        // Flattened, a kernel of more than one element has a shape that is not told.
        if input.geometry().groups != 1 || is_flat && parts * d != channels {
            return None;
        }
        let kernel = dims.get(2..).unwrap_or_default();
        let split = input.with_feature(input.feature().clone().split_channels(parts));
        let convolved = split.convolve(self.second.to_matrix(), kernel, 1);
        Some(convolved.mixed(self.scaled_first()))
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            first: self.first.moved(device, dtype),
            second: self.second.moved(device, dtype),
            scale: self.scale,
        })
    }

    fn num_bytes(&self) -> usize {
        self.first.num_bytes() + self.second.num_bytes()
    }
}

impl Lokr {
    /// `[d_output, fan_in]`.
    fn shape(&self) -> [usize; 2] {
        let ([a, b], [c, d]) = (self.first.shape(), self.second.shape());
        [a * c, b * d]
    }

    /// The first side, which is the smaller one as a rule, with the scale.
    fn scaled_first(&self) -> Tensor<2> {
        self.first.to_matrix().mul_scalar(self.scale)
    }
}

impl Block {
    fn take(
        group: &mut TensorGroup,
        whole: &str,
        factors: FactorKeys,
        device: &Device,
    ) -> Result<Self, PatchError> {
        if group.has(whole) {
            return Ok(Self::Whole(Values::take(group, whole, device)?));
        }
        Ok(Self::Product(Factors::take(group, factors, device)?))
    }

    /// As [`Factors::bound`].
    fn bound(group: &TensorGroup, whole: &str, factors: FactorKeys) -> f64 {
        if group.has(whole) {
            return group.largest_product(&[whole]);
        }
        Factors::bound(group, factors)
    }

    /// As a matrix.
    fn shape(&self) -> [usize; 2] {
        match self {
            Self::Whole(values) => values.shape(),
            Self::Product(factors) => factors.shape(),
        }
    }

    /// As far as the file states the axes.
    fn dims(&self) -> Vec<usize> {
        match self {
            Self::Whole(values) => values.dims().to_vec(),
            Self::Product(factors) => factors.dims(),
        }
    }

    /// The values, f32.
    fn to_matrix(&self) -> Tensor<2> {
        match self {
            Self::Whole(values) => values.of_shape(values.shape()),
            Self::Product(factors) => factors.product(),
        }
    }

    /// `input · selfᵀ`.
    fn apply(&self, input: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Whole(_) => input.matmul(self.to_matrix().transpose()),
            Self::Product(factors) => {
                let [up, down] = factors.pair();
                input.matmul(down.transpose()).matmul(up.transpose())
            }
        }
    }

    fn moved(&self, device: &Device, dtype: FloatDType) -> Self {
        match self {
            Self::Whole(values) => Self::Whole(values.moved(device, dtype)),
            Self::Product(factors) => Self::Product(factors.moved(device, dtype)),
        }
    }

    fn num_bytes(&self) -> usize {
        match self {
            Self::Whole(values) => values.num_bytes(),
            Self::Product(factors) => factors.num_bytes(),
        }
    }
}

/// Whether `kernel` is the layer's, or one of a single element on a layer without.
fn is_kernel(kernel: &[usize], layer: &LayerShape) -> bool {
    kernel == layer.kernel() || kernel.iter().chain(layer.kernel()).all(|size| *size == 1)
}

const KIND: &str = "lokr";
const W1: &str = "lokr_w1";
const W2: &str = "lokr_w2";
/// The first side has no middle factor; this key is none of the kind's.
const FIRST: FactorKeys = FactorKeys {
    up: "lokr_w1_a",
    mid: "lokr_t1",
    down: "lokr_w1_b",
    turns_up_beside_mid: false,
};
const SECOND: FactorKeys = FactorKeys {
    up: "lokr_w2_a",
    mid: "lokr_t2",
    down: "lokr_w2_b",
    turns_up_beside_mid: true,
};
