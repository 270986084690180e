//! Orthogonal finetuning as LyCORIS and kohya save it: rotations of blocks of outputs.
//!
//! `Q = B − Bᵀ`, brought to the norm `alpha · d_output` where alpha is above 0 and it is longer;
//! `R = (I + Q)(I − Q)⁻¹`, `R_s = s·R + (1 − s)·I`; `W′ = rescale · blockdiag(R_s)ᵀ · W`. The bias stays as it is.
//! `oft_blocks` B `[num_blocks, size, size]`, `rescale` `[d_output, 1, …]`; `num_blocks · size = d_output`.
//!
//! `rescale` counts whole at every strength: with it the residual is not proportional to the strength.
//!
//! `oft_diag` (LyCORIS, October and November 2023) has two meanings, told by the mean diagonal: near 0 it is D of
//! `R = I + D`, near 1 the finished R.
//!
//! Qiu et al., "Controlling Text-to-Image Diffusion by Orthogonal Finetuning", 2023, section 3.2; LyCORIS
//! `modules/diag_oft.py`.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};
use nalgebra::DMatrix;

use crate::{
    BaseAccess, BaseLayer, KindDocs, LayerShape, Patch, PatchError, PatchKind, TensorGroup,
    patch::tensor_bytes,
    rotation::{Blocks, blocks_times_rows},
    row_rotation::{ALPHA, RESCALE, check_rows, limit, rescaled_change, take_rescale},
};

inventory::submit! {
    PatchKind::new(KIND, &[&[BLOCKS], &[DIAGONAL]], load)
        .with_optional(&[ALPHA, RESCALE])
        .with_refused(&[&[BLOCKS, DIAGONAL]])
        .with_dimensions(&[(BLOCKS, 3)])
        .with_docs(KindDocs {
            formula: "W' = rescale · blockdiag(R)ᵀ · W, R = (I + Q)(I − Q)⁻¹, Q = B − Bᵀ, ‖Q‖ ≤ alpha · d_output",
            layers: "linear, convolution",
            strength: "R_s = s · R + (1 − s) · I; rescale counts whole",
            source: "Qiu et al. 2023, \"OFT\", section 3.2; LyCORIS modules/diag_oft.py",
        })
}

#[derive(Clone, Debug)]
struct Oft {
    /// `Rᵀ − I` `[num_blocks, size, size]`, f32.
    turn: Tensor<3>,
    /// Factors on rows `[d_output]`, f32.
    rescale: Option<Tensor<1>>,
    strength: f32,
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    if group.has(BLOCKS) && group.has(DIAGONAL) {
        let why = format!(
            "`{BLOCKS}` and `{DIAGONAL}` are both there, which no trainer is known to write; remove the one \
             that is not the adapter's"
        );
        return Err(group.inconsistent(why));
    }
    let key = if group.has(BLOCKS) { BLOCKS } else { DIAGONAL };
    if group.tensors.get(key).is_some_and(|data| data.rank() != 3) {
        let why = format!(
            "`{key}` has shape {:?}, expected 3 dimensions, [blocks, size, size], the only form that has a known \
             meaning",
            group.dims(key)
        );
        return Err(group.inconsistent(why));
    }
    let blocks = Blocks::take(&mut group, key)?;
    let d_output = blocks.num_blocks() * blocks.size();
    let limit = limit(&mut group, d_output)?;
    let turn = if key == BLOCKS {
        blocks.skewed(1.0).limited(limit).cayley_turn()
    } else {
        finished_turn(blocks)
    };
    let turn = turn.map(|block| block.transpose());
    Ok(Arc::new(Oft {
        turn: turn.to_tensor(&group, key, device)?,
        rescale: take_rescale(&mut group, d_output, device)?,
        strength: 1.0,
    }))
}

/// `R − I` of `oft_diag`: D itself, or of a finished R.
fn finished_turn(blocks: Blocks) -> Blocks {
    if blocks.mean_diagonal() < 0.5 {
        return blocks;
    }
    blocks.map(|block| {
        let identity = DMatrix::identity(block.nrows(), block.ncols());
        block - identity
    })
}

impl Patch for Oft {
    fn kind(&self) -> &str {
        KIND
    }

    fn base_access(&self) -> BaseAccess {
        BaseAccess::Weight
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        let [num_blocks, size, _] = self.turn.dims();
        check_rows(KIND, layer, num_blocks * size)
    }

    fn at_strength(&self, strength: f32) -> Option<Arc<dyn Patch>> {
        self.rescale.as_ref()?;
        Some(Arc::new(Self {
            strength: self.strength * strength,
            ..self.clone()
        }))
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let weight = base.weight_for(KIND)?;
        let turned = blocks_times_rows(&self.turn, weight).mul_scalar(self.strength);
        let rescale = self.rescale.as_ref();
        Ok(Some(rescaled_change(rescale, weight, turned)))
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        let [num_blocks, size, _] = self.turn.dims();
        let is_at_blocks = rows.start.is_multiple_of(size) && rows.end.is_multiple_of(size);
        if !is_at_blocks || rows.is_empty() || rows.end > num_blocks * size {
            return None;
        }
        let blocks = rows.start / size..rows.end / size;
        Some(Arc::new(Self {
            turn: self.turn.clone().slice_dim(0, blocks),
            rescale: self.rescale.clone().map(|rescale| rescale.slice([rows])),
            strength: self.strength,
        }))
    }

    /// Rotations stay f32: in 16 bits they would change the length of what they rotate.
    fn to_device(&self, device: &Device, _dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            turn: self.turn.clone().to_device(device),
            rescale: self
                .rescale
                .clone()
                .map(|rescale| rescale.to_device(device)),
            strength: self.strength,
        })
    }

    fn num_bytes(&self) -> usize {
        tensor_bytes(&self.turn) + self.rescale.as_ref().map_or(0, tensor_bytes)
    }
}

const KIND: &str = "oft";
const BLOCKS: &str = "oft_blocks";
const DIAGONAL: &str = "oft_diag";
