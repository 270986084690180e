//! Orthogonal finetuning by butterfly factors, as LyCORIS saves it.
//!
//! `oft_blocks` B `[num_factors, num_blocks, size, size]`; Q, alpha and `rescale` as in OFT, the norm of Q over all
//! factors. Factor i lays the rows out as `[…, 2, 2^i · size / 2]`, swaps those two axes, multiplies blocks of `size`
//! rows with `R_s = s·R + (1 − s)·I` (not transposed), and lays the rows back; `W′ = rescale · (all factors in turn) · W`.
//! The bias stays as it is. The residual is not proportional to the strength.
//!
//! Liu et al., "Parameter-Efficient Orthogonal Finetuning via Butterfly Factorization", 2023, section 4; LyCORIS
//! `modules/boft.py`.

use std::sync::Arc;

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseAccess, BaseLayer, KindDocs, LayerShape, Patch, PatchError, PatchKind, TensorGroup,
    patch::tensor_bytes,
    rotation::{blocks_times_rows, butterfly_factors},
    row_rotation::{ALPHA, RESCALE, check_rows, limit, rescaled_change, take_rescale},
};

inventory::submit! {
    PatchKind::new(KIND, &[&[BLOCKS]], load)
        .with_optional(&[ALPHA, RESCALE])
        .with_dimensions(&[(BLOCKS, 4)])
        .with_docs(KindDocs {
            formula: "W' = rescale · P_mᵀ R_m P_m ⋯ P_1ᵀ R_1 P_1 · W, R = (I + Q)(I − Q)⁻¹, Q = B − Bᵀ",
            layers: "linear, convolution",
            strength: "R_s = s · R + (1 − s) · I in every factor; rescale counts whole",
            source: "Liu et al. 2023, \"BOFT\", section 4; LyCORIS modules/boft.py",
        })
}

#[derive(Clone, Debug)]
struct Boft {
    /// `R − I` of each factor, `[num_blocks, size, size]`, f32.
    turns: Vec<Tensor<3>>,
    /// Factors on rows `[d_output]`, f32.
    rescale: Option<Tensor<1>>,
    strength: f32,
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let (blocks, num_factors) = butterfly_factors(&mut group, BLOCKS)?;
    if blocks.size() % 2 != 0 {
        let why = format!(
            "`{BLOCKS}` has blocks of size {}, expected an even size",
            blocks.size()
        );
        return Err(group.inconsistent(why));
    }
    let d_output = blocks.num_blocks() / num_factors * blocks.size();
    let limit = limit(&mut group, d_output)?;
    let turn = blocks.skewed(1.0).limited(limit).cayley_turn();
    let turn = turn.to_tensor(&group, BLOCKS, device)?;
    Ok(Arc::new(Boft {
        turns: turn.chunk(num_factors, 0),
        rescale: take_rescale(&mut group, d_output, device)?,
        strength: 1.0,
    }))
}

impl Patch for Boft {
    fn kind(&self) -> &str {
        KIND
    }

    fn base_access(&self) -> BaseAccess {
        BaseAccess::Weight
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        let rows = self.turns.first().map_or(0, |turn| {
            let [num_blocks, size, _] = turn.dims();
            num_blocks * size
        });
        check_rows(KIND, layer, rows)
    }

    fn at_strength(&self, strength: f32) -> Option<Arc<dyn Patch>> {
        Some(Arc::new(Self {
            strength: self.strength * strength,
            ..self.clone()
        }))
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let weight = base.weight_for(KIND)?;
        // Summed up as the change, not as the changed weight: the base's own rounding stays out of it.
        let mut change: Option<Tensor<2>> = None;
        for (index, turn) in self.turns.iter().enumerate() {
            let rotated = match &change {
                None => weight.clone(),
                Some(change) => weight.clone() + change.clone(),
            };
            let step = butterfly(turn, &rotated, index).mul_scalar(self.strength);
            change = Some(match change {
                None => step,
                Some(change) => change + step,
            });
        }
        let rescale = self.rescale.as_ref();
        Ok(change.map(|change| rescaled_change(rescale, weight, change)))
    }

    /// Rotations stay f32: in 16 bits they would change the length of what they rotate.
    fn to_device(&self, device: &Device, _dtype: FloatDType) -> Arc<dyn Patch> {
        let turns = self.turns.iter().map(|turn| turn.clone().to_device(device));
        Arc::new(Self {
            turns: turns.collect(),
            rescale: self
                .rescale
                .clone()
                .map(|rescale| rescale.to_device(device)),
            strength: self.strength,
        })
    }

    fn num_bytes(&self) -> usize {
        let turns = self.turns.iter().map(tensor_bytes);
        turns.sum::<usize>() + self.rescale.as_ref().map_or(0, tensor_bytes)
    }
}

/// The blocks `turn` times the rows of `weight` `[d_output, fan_in]` in the order of factor `index`.
fn butterfly(turn: &Tensor<3>, weight: &Tensor<2>, index: usize) -> Tensor<2> {
    let [_, size, _] = turn.dims();
    let [rows, fan_in] = weight.dims();
    let half = (size / 2) << index;
    let runs = rows / (2 * half);
    let mixed = weight.clone().reshape([runs, 2, half, fan_in]);
    let mixed = mixed.swap_dims(1, 2).reshape([rows, fan_in]);
    let turned = blocks_times_rows(turn, &mixed).reshape([runs, half, 2, fan_in]);
    turned.swap_dims(1, 2).reshape([rows, fan_in])
}

const KIND: &str = "boft";
const BLOCKS: &str = "oft_blocks";
