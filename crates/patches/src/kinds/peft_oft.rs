//! Orthogonal finetuning as PEFT and `OneTrainer` save it: rotations of blocks of inputs.
//!
//! `W′ = oft_s · W · blockdiag(R)ᵀ`, over the flattened columns of a convolution; one block stands for all. The
//! residual `W′ − W` counts proportionally to the strength; the bias stays as it is.
//!
//! PEFT up to 0.14: `oft_r` B `[num_blocks, size, size]`, `Q = (B − Bᵀ) / 2`, `R = (I − Q)(I + Q)⁻¹`, `oft_s`
//! `[d_output, 1]`. From 0.15, and `OneTrainer`: `oft_R.weight` `[num_blocks, size · (size − 1) / 2]`, the strict upper
//! triangle U row by row, `Q = U − Uᵀ`, no `oft_s`; R is either `(I − Q)(I + Q)⁻¹` or the series
//! `I + 2Q + 2Q² + 2Q³ + f·Q⁴` of the opposite sign, f = 2 up to 0.17.1 and 1 from 0.18 on, and in `OneTrainer`. The
//! configuration says which. Constrained OFT first brings every block of Q (of B, in old files) to its limit.
//!
//! Qiu et al., "Controlling Text-to-Image Diffusion by Orthogonal Finetuning", 2023, sections 3.2 and 3.3; PEFT
//! `tuners/oft/layer.py` of 0.14.0, 0.17.1 and 0.18.0.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};
use nalgebra::DMatrix;

use crate::{
    BaseAccess, BaseLayer, KindDocs, LayerConfig, LayerShape, OftConfig, Patch, PatchError,
    PatchKind, TensorGroup,
    patch::{tensor_bytes, wide},
    rotation::{Blocks, check_rotates, columns_times_blocks},
    row_rotation::rescaled_change,
};

inventory::submit! {
    PatchKind::new(KIND, &[&[OLD, SCALE], &[NEW]], load)
        .with_aliases(&[("oft_r.*", OLD), ("oft_s.*", SCALE), ("oft_R.*.weight", NEW)])
        .with_peft_types(&["OFT"])
        .with_docs(KindDocs {
            formula: "W' = oft_s · W · blockdiag(R)ᵀ, R = (I − Q)(I + Q)⁻¹ or I + 2Q + 2Q² + 2Q³ + f · Q⁴",
            layers: "linear, convolution",
            strength: "proportional: W + s(W' − W)",
            source: "Qiu et al. 2023, \"OFT\", section 3.2; PEFT tuners/oft/layer.py",
        })
}

#[derive(Clone, Debug)]
struct PeftOft {
    /// `Rᵀ − I` `[num_blocks, size, size]`, f32; one block stands for all.
    turn: Tensor<3>,
    /// Factors on rows `[d_output]`, f32.
    scale: Option<Tensor<1>>,
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let config = group.config.clone();
    let oft = config.as_ref().map(|config| config.oft).unwrap_or_default();
    let (key, turn, scale) = if group.has(NEW) {
        (NEW, new_turn(&mut group, &oft)?, None)
    } else {
        let (scale, _) = group.take_vector(SCALE, device)?;
        let turn = old_turn(&mut group, config.as_ref(), scale.dims()[0])?;
        (OLD, turn, Some(wide(&scale)))
    };
    let turn = turn.map(|block| block.transpose());
    let turn = turn.to_tensor(&group, key, device)?;
    Ok(Arc::new(PeftOft { turn, scale }))
}

/// `R − I` of PEFT up to 0.14.
fn old_turn(
    group: &mut TensorGroup,
    config: Option<&LayerConfig>,
    d_output: usize,
) -> Result<Blocks, PatchError> {
    let mut blocks = Blocks::take(group, OLD)?;
    if let Some(config) = config.filter(|config| config.oft.is_constrained) {
        let num_blocks = config.rank.unwrap_or(blocks.num_blocks()).max(1);
        let rows = d_output.div_ceil(num_blocks) as f64;
        let limit = config.oft.epsilon * rows * rows / (blocks.num_blocks() as f64).sqrt();
        blocks = blocks.limited_each(limit);
    }
    Ok(blocks.skewed(-0.5).cayley_turn())
}

/// `R − I` of PEFT from 0.15 on, and of `OneTrainer`.
fn new_turn(group: &mut TensorGroup, oft: &OftConfig) -> Result<Blocks, PatchError> {
    let mut blocks = Blocks::take_triangles(group, NEW)?;
    if oft.is_constrained {
        let limit = oft.epsilon / (blocks.num_blocks() as f64).sqrt();
        blocks = blocks.limited_each(limit);
    }
    if oft.is_series {
        return Ok(blocks.map(|skew| series(&skew, oft)));
    }
    Ok(blocks.map(|skew| -skew).cayley_turn())
}

/// `2Q + 2Q² + … + f·Qⁿ⁻¹` for n terms with the identity; PEFT from 0.18 on adds its last term to three as well.
fn series(skew: &DMatrix<f64>, oft: &OftConfig) -> DMatrix<f64> {
    let (doubled, last) = match (oft.num_terms, oft.is_last_term_single) {
        (0 | 1, _) => (0, false),
        (2, _) => (1, false),
        (num_terms, true) => ((num_terms - 2).max(2), true),
        (num_terms, false) => (num_terms - 1, false),
    };
    let mut power = DMatrix::identity(skew.nrows(), skew.ncols());
    let mut sum = DMatrix::zeros(skew.nrows(), skew.ncols());
    for _ in 0..doubled {
        power = &power * skew;
        sum += &power * 2.0;
    }
    if last {
        sum += power * skew;
    }
    sum
}

impl Patch for PeftOft {
    fn kind(&self) -> &str {
        KIND
    }

    fn base_access(&self) -> BaseAccess {
        BaseAccess::Weight
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        check_rotates(KIND, layer)?;
        let [num_blocks, size, _] = self.turn.dims();
        let scaled_rows = self.scale.as_ref().map(|scale| scale.dims()[0]);
        let rows = scaled_rows.unwrap_or(layer.d_output());
        let is_shared = num_blocks == 1 && layer.fan_in().is_multiple_of(size);
        let fits_columns = is_shared || num_blocks * size == layer.fan_in();
        if fits_columns && rows == layer.d_output() {
            return Ok(());
        }
        let columns = if is_shared {
            layer.fan_in()
        } else {
            num_blocks * size
        };
        Err(PatchError::DoesNotFit {
            kind: KIND.into(),
            patch: [rows, columns],
            base: layer.dims().into(),
        })
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let weight = base.weight_for(KIND)?;
        let turned = columns_times_blocks(weight, &self.turn);
        Ok(Some(rescaled_change(self.scale.as_ref(), weight, turned)))
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        let scale = match &self.scale {
            None => None,
            Some(scale) if !rows.is_empty() && rows.end <= scale.dims()[0] => {
                Some(scale.clone().slice([rows]))
            }
            Some(_) => return None,
        };
        // Every row is rotated alike.
        Some(Arc::new(Self {
            turn: self.turn.clone(),
            scale,
        }))
    }

    /// Rotations stay f32: in 16 bits they would change the length of what they rotate.
    fn to_device(&self, device: &Device, _dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            turn: self.turn.clone().to_device(device),
            scale: self.scale.clone().map(|scale| scale.to_device(device)),
        })
    }

    fn num_bytes(&self) -> usize {
        tensor_bytes(&self.turn) + self.scale.as_ref().map_or(0, tensor_bytes)
    }
}

const KIND: &str = "peft-oft";
const OLD: &str = "oft_r";
const SCALE: &str = "oft_s";
const NEW: &str = "oft_R.weight";
