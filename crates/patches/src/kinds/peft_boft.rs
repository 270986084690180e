//! Orthogonal finetuning by butterfly factors, as PEFT saves it: rotations of blocks of inputs.
//!
//! `boft_R` B `[num_factors, num_blocks, size, size]`, `Q = (B − Bᵀ) / 2`, `R = (I − Q)(I + Q)⁻¹`. Factor i lays the
//! columns out as `[…, 2, 2^i, size / 2]`, swaps those two axes, multiplies blocks of `size` columns with R, and lays
//! them back: `W′ = boft_s · W · (M_m ⋯ M_1)ᵀ`, `boft_s` `[d_output, 1]`. A convolution's weight is read as
//! `[fan_in, d_output]` without moving a value, as PEFT does, and `boft_s` is `[1, d_output]`. The residual `W′ − W`
//! counts proportionally to the strength; the bias stays as it is.
//!
//! `boft_P` `[num_factors, fan_in, fan_in]`, which PEFT saves with them, holds those permutations. They follow from the
//! shape of `boft_R`; a file that has others is refused.
//!
//! Liu et al., "Parameter-Efficient Orthogonal Finetuning via Butterfly Factorization", 2023, section 4; PEFT
//! `tuners/boft/layer.py`.

use std::sync::Arc;

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseAccess, BaseLayer, KindDocs, LayerShape, Operator, Patch, PatchError, PatchKind,
    TensorGroup,
    patch::{tensor_bytes, wide},
    rotation::{butterfly_factors, check_rotates, columns_times_blocks},
    row_rotation::rescaled_change,
};

inventory::submit! {
    PatchKind::new(KIND, &[&[BLOCKS, SCALE]], load)
        .with_optional(&[PERMUTATIONS])
        .with_aliases(&[("boft_R.*", BLOCKS), ("boft_s.*", SCALE), ("boft_P.*", PERMUTATIONS)])
        .with_dimensions(&[(BLOCKS, 4)])
        .with_peft_types(&["BOFT"])
        .with_docs(KindDocs {
            formula: "W' = boft_s · W · (P_m R_m P_mᵀ ⋯ P_1 R_1 P_1ᵀ)ᵀ, R = (I − Q)(I + Q)⁻¹, Q = (B − Bᵀ) / 2",
            layers: "linear, convolution",
            strength: "proportional: W + s(W' − W)",
            source: "Liu et al. 2023, \"BOFT\", section 4; PEFT tuners/boft/layer.py",
        })
}

#[derive(Clone, Debug)]
struct PeftBoft {
    /// `Rᵀ − I` of each factor, `[num_blocks, size, size]`, f32.
    turns: Vec<Tensor<3>>,
    /// Factors on rows `[d_output]`, f32.
    scale: Tensor<1>,
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let (blocks, num_factors) = butterfly_factors(&mut group, BLOCKS)?;
    check_permutations(&mut group, num_factors, blocks.size(), blocks.num_blocks())?;
    let (scale, _) = group.take_vector(SCALE, device)?;
    let turn = blocks.skewed(-0.5).cayley_turn();
    let turn = turn.map(|block| block.transpose());
    let turn = turn.to_tensor(&group, BLOCKS, device)?;
    Ok(Arc::new(PeftBoft {
        turns: turn.chunk(num_factors, 0),
        scale: wide(&scale),
    }))
}

/// Refuses permutations in the file that are not those of the factors; `num_blocks` counts all factors' blocks.
fn check_permutations(
    group: &mut TensorGroup,
    num_factors: usize,
    size: usize,
    num_blocks: usize,
) -> Result<(), PatchError> {
    if !group.has(PERMUTATIONS) {
        return Ok(());
    }
    let side = num_blocks / num_factors * size;
    let data = group.take_floats(PERMUTATIONS)?;
    let (found, expected) = (data.shape().to_vec(), [num_factors, side, side]);
    if found != expected {
        let why = format!("`{PERMUTATIONS}` has shape {found:?}, expected {expected:?}");
        return Err(group.inconsistent(why));
    }
    let values: Vec<f32> = data.iter().collect();
    let is_known = values.chunks_exact(side).enumerate().all(|(row, values)| {
        let source = source_of(row % side, size, row / side);
        let expected = |column| f32::from(u8::from(column == source));
        let mut values = values.iter().enumerate();
        values.all(|(column, value)| *value == expected(column))
    });
    if is_known {
        return Ok(());
    }
    let why =
        format!("`{PERMUTATIONS}` has other permutations than PEFT makes for blocks of {size}");
    Err(group.inconsistent(why))
}

/// The place in `[…, 2^index, 2, size / 2]` of what stands at `place` in `[…, 2, 2^index, size / 2]`.
fn source_of(place: usize, size: usize, index: usize) -> usize {
    if !size.is_multiple_of(2) {
        return place;
    }
    let (half, pairs) = (size / 2, 1 << index);
    let (run, within) = (place / (size * pairs), place % (size * pairs));
    let (chunk, offset) = (within / half, within % half);
    let (side, pair) = (chunk / pairs, chunk % pairs);
    run * size * pairs + (pair * 2 + side) * half + offset
}

impl Patch for PeftBoft {
    fn kind(&self) -> &str {
        KIND
    }

    fn base_access(&self) -> BaseAccess {
        BaseAccess::Weight
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        check_rotates(KIND, layer)?;
        let columns = self.turns.first().map_or(0, |turn| {
            let [num_blocks, size, _] = turn.dims();
            num_blocks * size
        });
        let [rows] = self.scale.dims();
        if [rows, columns] == [layer.d_output(), layer.fan_in()] {
            return Ok(());
        }
        Err(PatchError::DoesNotFit {
            kind: KIND.into(),
            patch: [rows, columns],
            base: layer.dims().into(),
        })
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let weight = base.weight_for(KIND)?;
        let [d_output, fan_in] = weight.dims();
        let is_reread = matches!(base.shape.operator(), Operator::Conv { .. });
        if !is_reread {
            return Ok(Some(self.change_of(weight)));
        }
        let weight = weight.clone().reshape([fan_in, d_output]).transpose();
        let change = self.change_of(&weight).transpose();
        Ok(Some(change.reshape([d_output, fan_in])))
    }

    /// Rotations stay f32: in 16 bits they would change the length of what they rotate.
    fn to_device(&self, device: &Device, _dtype: FloatDType) -> Arc<dyn Patch> {
        let turns = self.turns.iter().map(|turn| turn.clone().to_device(device));
        Arc::new(Self {
            turns: turns.collect(),
            scale: self.scale.clone().to_device(device),
        })
    }

    fn num_bytes(&self) -> usize {
        let turns = self.turns.iter().map(tensor_bytes);
        turns.sum::<usize>() + tensor_bytes(&self.scale)
    }
}

impl PeftBoft {
    /// `W′ − W` of `weight` `[d_output, fan_in]`.
    fn change_of(&self, weight: &Tensor<2>) -> Tensor<2> {
        // Summed up as the change, not as the changed weight: the base's own rounding stays out of it.
        let mut change = Tensor::zeros_like(weight);
        for (index, turn) in self.turns.iter().enumerate() {
            let rotated = weight.clone() + change.clone();
            change = change + butterfly(turn, &rotated, index);
        }
        rescaled_change(Some(&self.scale), weight, change)
    }
}

/// The columns of `weight` `[rows, fan_in]` in the order of factor `index` times the blocks `turn`.
fn butterfly(turn: &Tensor<3>, weight: &Tensor<2>, index: usize) -> Tensor<2> {
    if index == 0 {
        return columns_times_blocks(weight, turn);
    }
    let [_, size, _] = turn.dims();
    let [rows, fan_in] = weight.dims();
    let (half, pairs) = (size / 2, 1 << index);
    let runs = rows * fan_in / (size * pairs);
    let mixed = weight.clone().reshape([runs, 2, pairs, half]);
    let mixed = mixed.swap_dims(1, 2).reshape([rows, fan_in]);
    let turned = columns_times_blocks(&mixed, turn).reshape([runs, pairs, 2, half]);
    turned.swap_dims(1, 2).reshape([rows, fan_in])
}

const KIND: &str = "peft-boft";
const BLOCKS: &str = "boft_R";
const SCALE: &str = "boft_s";
const PERMUTATIONS: &str = "boft_P";
