//! Generalized low-rank adaptation: a low-rank change of the base's inputs and a low-rank residual.
//!
//! `ΔW = scale · (W · a1 · a2 + b1 · b2)`, `scale` = `alpha / rank`, 1 without alpha. `a1 [d_input, rank]`,
//! `a2 [rank, d_input]`, `b1 [d_output, rank]`, `b2 [rank, d_input, kernel…]`; on a convolution the `a` act on
//! the input axis alone. With `bm [rank, rank, kernel…]` between them, `b2` has no kernel: see [`Factors`].
//!
//! Early files have the factors the other way round, `W · a2 · a1 + b2 · b1`. The sizes that the four have in common
//! tell; on a square layer either way agrees, and the rank is the smaller size of `a1`.
//!
//! Chavan et al., "One-for-All: Generalized LoRA for Parameter-Efficient Fine-tuning", 2023, equation 10;
//! LyCORIS, `modules/glora.py`.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseAccess, BaseLayer, KindDocs, LayerShape, Patch, PatchError, PatchKind, TensorGroup,
    added::Added,
    axes::{check_is_matrix, check_weight},
    factors::{FactorKeys, Factors},
    sparse::{INDICES, SIZE, VALUES},
};

inventory::submit! {
    PatchKind::new(KIND, &[&[A1, A2, B1, B2]], load)
        .with_optional(&[BM, "alpha", "scale", INDICES, VALUES, SIZE])
        .with_docs(KindDocs {
            formula: "ΔW = scale · (W · a1 · a2 + b1 · b2); scale = alpha / rank",
            layers: "linear, convolution, embedding",
            strength: "proportional",
            source: "Chavan et al. 2023, \"One-for-All\", equation 10; LyCORIS, modules/glora.py",
        })
}

#[derive(Clone, Debug)]
struct Glora {
    /// `a1 · a2 [d_input, d_input]`.
    input: Factors,
    /// `b1 · b2 [d_output, fan_in]`.
    residual: Factors,
    scale: f32,
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let (input, residual) = match is_reversed(&group) {
        true => ([A2, A1], [B2, B1]),
        false => ([A1, A2], [B1, B2]),
    };
    let bounds = [
        Factors::bound(&group, keys(input, NO_MID)),
        Factors::bound(&group, keys(residual, BM)),
    ];
    let input = Factors::take(&mut group, keys(input, NO_MID), device)?;
    let residual = Factors::take(&mut group, keys(residual, BM), device)?;
    let [rows, columns] = input.shape();
    if rows != columns {
        let why =
            format!("`{A1}` and `{A2}` make a matrix {rows} by {columns}, expected a square one");
        return Err(group.inconsistent(why));
    }
    let (scale, shape) = (group.take_scale(input.rank())?, residual.shape());
    let mut bounds = bounds.into_iter();
    bounds.try_for_each(|bound| group.check_bound(bound, scale))?;
    let patch = Glora {
        input,
        residual,
        scale,
    };
    Added::scaled_sparse(Arc::new(patch), &mut group, shape, scale, device)
}

impl Patch for Glora {
    fn kind(&self) -> &str {
        KIND
    }

    fn base_access(&self) -> BaseAccess {
        BaseAccess::Weight
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        check_is_matrix(KIND, layer)?;
        check_weight(KIND, &self.residual.dims(), layer)?;
        let d_input = self.input.shape()[0];
        if d_input == layer.d_input() {
            return Ok(());
        }
        Err(PatchError::OtherAxes {
            kind: KIND.into(),
            patch: [&[layer.d_output(), d_input], layer.kernel()].concat(),
            base: layer.dims().into(),
        })
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let weight = base.weight_for(KIND)?;
        let [d_output, fan_in] = weight.dims();
        let d_input = self.input.shape()[0];
        let [a1, a2] = self.input.pair();
        // The input axis last, so that the factors multiply it.
        let by_input = weight
            .clone()
            .reshape([d_output, d_input, fan_in / d_input])
            .swap_dims(1, 2)
            .reshape([d_output * fan_in / d_input, d_input]);
        let changed = by_input.matmul(a1).matmul(a2);
        let changed = changed
            .reshape([d_output, fan_in / d_input, d_input])
            .swap_dims(1, 2)
            .reshape([d_output, fan_in]);
        let delta = changed + self.residual.product();
        Ok(Some(delta.mul_scalar(self.scale)))
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        Some(Arc::new(Self {
            residual: self.residual.rows(rows)?,
            ..self.clone()
        }))
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            input: self.input.moved(device, dtype),
            residual: self.residual.moved(device, dtype),
            scale: self.scale,
        })
    }

    fn num_bytes(&self) -> usize {
        self.input.num_bytes() + self.residual.num_bytes()
    }
}

/// Whether the factors are the other way round.
fn is_reversed(group: &TensorGroup) -> bool {
    let sizes = |key| match *group.dims(key) {
        [rows, columns, ..] => Some([rows, columns]),
        _ => None,
    };
    let (Some(a1), Some(a2), Some(b1), Some(b2)) = (sizes(A1), sizes(A2), sizes(B1), sizes(B2))
    else {
        return false;
    };
    match (agree([a1, a2, b1, b2]), agree([a2, a1, b2, b1])) {
        (true, false) => false,
        (false, true) => true,
        _ => a1[0] < a1[1],
    }
}

/// Whether `a1 · a2` and `b1 · b2` are products of one rank over the same inputs.
fn agree([a1, a2, b1, b2]: [[usize; 2]; 4]) -> bool {
    [a2[0], b1[1], b2[0]] == [a1[1]; 3] && a1[0] == b2[1]
}

fn keys([up, down]: [&'static str; 2], mid: &'static str) -> FactorKeys {
    FactorKeys {
        up,
        mid,
        down,
        turns_up_beside_mid: false,
    }
}

const KIND: &str = "glora";
const A1: &str = "a1.weight";
const A2: &str = "a2.weight";
const B1: &str = "b1.weight";
const B2: &str = "b2.weight";
const BM: &str = "bm.weight";
/// The factors of the input have nothing between them; this key is none of the kind's.
const NO_MID: &str = "am.weight";
