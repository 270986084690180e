//! Low-rank Hadamard product.
//!
//! `ΔW = scale · (w1_a · w1_b) ∘ (w2_a · w2_b)`, element by element; `scale` is `alpha / rank`, 1 without alpha,
//! with `rank` = rows of `w1_b`. `w*_a [d_output, rank]`, `w*_b [rank, fan_in]`. With middle factors
//! `t* [rank, rank, kernel…]` (Tucker), `w*_a` is `[rank, d_output]` and `w*_b` `[rank, d_input]`: see
//! [`Factors`].
//!
//! The product of two low-rank matrices has thin factors of rank `rank²`, the products of all pairs of columns
//! and of all pairs of rows.
//!
//! Hyeon-Woo et al., "`FedPara`: Low-Rank Hadamard Product for Communication-Efficient Federated Learning",
//! 2021, proposition 2; LyCORIS, `functional/loha.py`.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseLayer, KindDocs, LayerShape, LowRank, Patch, PatchError, PatchKind, TensorGroup,
    added::Added,
    axes::{check_is_matrix, check_weight},
    factors::{FactorKeys, Factors},
    sparse::{INDICES, SIZE, VALUES},
};

inventory::submit! {
    PatchKind::new(KIND, &[&[FIRST.up, FIRST.down, SECOND.up, SECOND.down]], load)
        .with_optional(&[
            FIRST.mid, SECOND.mid, "alpha", "scale", INDICES, VALUES, SIZE,
        ])
        .with_rank_key(FIRST.down)
        .with_peft_types(&["LOHA"])
        .with_docs(KindDocs {
            formula: "ΔW = scale · (w1_a · w1_b) ∘ (w2_a · w2_b), each with t* between; scale = alpha / rank",
            layers: "linear, convolution, embedding",
            strength: "proportional",
            source: "Hyeon-Woo et al. 2021, \"FedPara\", proposition 2; LyCORIS, functional/loha.py",
        })
}

#[derive(Clone, Debug)]
struct Loha {
    first: Factors,
    second: Factors,
    /// Factor on the product of their products.
    scale: f32,
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let rank = group.dims(FIRST.down).first().copied().unwrap_or(0);
    let bound = Factors::bound(&group, FIRST) * Factors::bound(&group, SECOND);
    let first = Factors::take(&mut group, FIRST, device)?;
    let second = Factors::take(&mut group, SECOND, device)?;
    let (shape, other) = (first.shape(), second.shape());
    if shape != other {
        let why =
            format!("`hada_w1_*` are for a weight of shape {shape:?}, `hada_w2_*` of {other:?}");
        return Err(group.inconsistent(why));
    }
    let scale = group.take_scale(rank)?;
    group.check_bound(bound, scale)?;
    let patch = Loha {
        first,
        second,
        scale,
    };
    Added::scaled_sparse(Arc::new(patch), &mut group, shape, scale, device)
}

impl Patch for Loha {
    fn kind(&self) -> &str {
        KIND
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        check_is_matrix(KIND, layer)?;
        check_weight(KIND, &self.first.dims(), layer)?;
        check_weight(KIND, &self.second.dims(), layer)
    }

    fn low_rank(&self) -> Option<LowRank> {
        let rank = self.first.rank() * self.second.rank();
        let [d_output, fan_in] = self.first.shape();
        if rank * WORTH_IT > d_output.min(fan_in) {
            return None;
        }
        let [first_up, first_down] = self.first.pair();
        let [second_up, second_down] = self.second.pair();
        let down = first_down.unsqueeze_dim::<3>(1) * second_down.unsqueeze_dim::<3>(0);
        let up = first_up.unsqueeze_dim::<3>(2) * second_up.unsqueeze_dim::<3>(1);
        Some(LowRank {
            up: up.reshape([d_output, rank]).mul_scalar(self.scale),
            down: down.reshape([rank, fan_in]),
        })
    }

    fn delta_weight(&self, _base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let product = self.first.product() * self.second.product();
        Ok(Some(product.mul_scalar(self.scale)))
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        Some(Arc::new(Self {
            first: self.first.rows(rows.clone())?,
            second: self.second.rows(rows)?,
            scale: self.scale,
        }))
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

const KIND: &str = "loha";
const FIRST: FactorKeys = FactorKeys {
    up: "hada_w1_a",
    mid: "hada_t1",
    down: "hada_w1_b",
    turns_up_beside_mid: true,
};
const SECOND: FactorKeys = FactorKeys {
    up: "hada_w2_a",
    mid: "hada_t2",
    down: "hada_w2_b",
    turns_up_beside_mid: true,
};
/// Thin factors of a rank above a quarter of the weight's shorter side save too little over ΔW.
const WORTH_IT: usize = 4;
