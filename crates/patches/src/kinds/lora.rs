//! Low-rank adaptation, with an optional bias.
//!
//! `ΔW = scale · up · down`, `Δb = scale · bias`; `scale` is the file's own, else `alpha / rank`,
//! else 1. `up [d_output, rank]`, `down [rank, d_input, kernel…]`, `bias [d_output]`. With a middle factor
//! `mid [rank, rank, kernel…]` (Tucker), `down` has no kernel: see [`Factors`].
//!
//! Found in files beside that: `down` with k times the rank of `up` stands for the sum of its k chunks, with
//! `rank` = rows of `down`; a sparse triple, scaled alike; `reshape_weight`, the shape that the base is filled
//! up to with zeros, as a control adapter's file states it; and an embedding's factors the other way
//! round, `ΔW = scale · (B · A)ᵀ` with `A [rank, num_embeddings]`, `B [d_model, rank]`.
//!
//! Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1; PEFT,
//! `tuners/lora/layer.py`, for embeddings.

use std::{ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseLayer, KindDocs, LayerShape, LowRank, Patch, PatchError, PatchKind, TensorGroup,
    added::Added,
    axes::{check_bias, check_is_matrix, check_size, check_weight},
    factors::{FactorKeys, Factors},
    patch::tensor_bytes,
    sparse::{INDICES, SIZE, VALUES, integers},
};

inventory::submit! {
    PatchKind::new(KIND, &[&[UP, DOWN]], load)
        .with_optional(&[
            MID, "alpha", "scale", BIAS, RESHAPE, INDICES, VALUES, SIZE,
        ])
        .with_aliases(ALIASES)
        .with_rank_key(DOWN)
        .with_peft_types(&["LORA"])
        .with_docs(KindDocs {
            formula: "ΔW = scale · up · down (or up · mid · down), Δb = scale · bias; scale = alpha / rank, \
                      1 without alpha",
            layers: "linear, convolution, embedding",
            strength: "proportional",
            source: "Hu et al. 2021, \"LoRA\", section 4.1",
        })
}

inventory::submit! {
    PatchKind::new("lora-embedding", &[&[EMBEDDING_A, EMBEDDING_B]], load_embedding)
        .with_optional(&["alpha", "scale"])
        .with_aliases(&[
            ("lora_embedding_A.*", EMBEDDING_A),
            ("lora_embedding_B.*", EMBEDDING_B),
        ])
        .with_rank_key(EMBEDDING_A)
        .with_peft_types(&["LORA"])
        .with_docs(KindDocs {
            formula: "ΔW = scale · (B · A)ᵀ; scale = alpha / rank, 1 without alpha",
            layers: "embedding",
            strength: "proportional",
            source: "PEFT, tuners/lora/layer.py, class Embedding",
        })
}

#[derive(Clone, Debug)]
struct Lora {
    factors: Factors,
    /// Factor on their product.
    scale: f32,
    /// Δb, already scaled, f32 `[d_output]`.
    bias: Option<Tensor<1>>,
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let rank = group.dims(DOWN).first().copied().unwrap_or(0);
    let bound = Factors::bound(&group, KEYS);
    let factors = if group.has(MID) {
        Factors::take(&mut group, KEYS, device)?
    } else {
        take_pair(&mut group, device)?
    };
    let scale = group.take_scale(rank)?;
    group.check_bound(bound, scale)?;
    check_reshape(&mut group, factors.shape())?;
    let bias = take_bias(&mut group, factors.shape()[0], device)?;
    let bias = bias.map(|bias| bias.mul_scalar(scale));
    let shape = factors.shape();
    let patch = Arc::new(Lora {
        factors,
        scale,
        bias,
    });
    Added::scaled_sparse(patch, &mut group, shape, scale, device)
}

fn load_embedding(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let largest = group.largest_product(&[EMBEDDING_A, EMBEDDING_B]);
    let down = group.take::<2>(EMBEDDING_B, device)?.transpose();
    let up = group.take::<2>(EMBEDDING_A, device)?.transpose();
    let axes = vec![down.dims()[1]];
    let keys = FactorKeys {
        up: EMBEDDING_A,
        down: EMBEDDING_B,
        ..KEYS
    };
    let rank = up.dims()[1];
    let factors = Factors::of_two(&group, keys, [up, down], axes)?;
    let scale = group.take_scale(rank)?;
    group.check_bound(largest * rank as f64, scale)?;
    Ok(Arc::new(Lora {
        factors,
        scale,
        bias: None,
    }))
}

impl Patch for Lora {
    fn kind(&self) -> &str {
        KIND
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        check_is_matrix(KIND, layer)?;
        if let Some(bias) = &self.bias {
            check_bias(KIND, bias.dims()[0], layer)?;
        }
        if self.widens(layer) {
            return Ok(());
        }
        check_weight(KIND, &self.factors.dims(), layer)
    }

    fn d_input(&self, layer: &LayerShape) -> usize {
        if self.widens(layer) {
            return self.factors.shape()[1];
        }
        layer.d_input()
    }

    fn low_rank(&self) -> Option<LowRank> {
        let [up, down] = self.factors.pair();
        let [d_output, fan_in] = self.factors.shape();
        // The scale goes on the smaller factor.
        Some(if d_output < fan_in {
            LowRank {
                up: scaled(up, self.scale),
                down,
            }
        } else {
            LowRank {
                up,
                down: scaled(down, self.scale),
            }
        })
    }

    fn delta_weight(&self, _base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        Ok(Some(scaled(self.factors.product(), self.scale)))
    }

    fn changes_bias(&self) -> bool {
        self.bias.is_some()
    }

    fn delta_bias(&self, _base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        Ok(self.bias.clone())
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        Some(Arc::new(Self {
            factors: self.factors.rows(rows.clone())?,
            scale: self.scale,
            bias: self.bias.clone().map(|bias| bias.slice([rows])),
        }))
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self {
            factors: self.factors.moved(device, dtype),
            scale: self.scale,
            bias: self.bias.clone().map(|bias| bias.to_device(device)),
        })
    }

    fn num_bytes(&self) -> usize {
        self.factors.num_bytes() + self.bias.as_ref().map_or(0, tensor_bytes)
    }
}

impl Lora {
    /// Whether it is a control patch on `layer`: it reads more columns than the base, a few times as many, and the
    /// layer may be given them.
    fn widens(&self, layer: &LayerShape) -> bool {
        let [d_output, fan_in] = self.factors.shape();
        let widths = layer.d_input() + 1..=layer.d_input().saturating_mul(MAX_WIDENING);
        layer.has_open_input() && d_output == layer.d_output() && widths.contains(&fan_in)
    }
}

/// A merge builds the widened weight. Control images come beside the input, and FLUX's fill model takes six times as
/// many columns as its text-to-image one.
const MAX_WIDENING: usize = 16;

/// The two factors of a file without a middle one.
fn take_pair(group: &mut TensorGroup, device: &Device) -> Result<Factors, PatchError> {
    let mut axes = group.dims(DOWN);
    let up = group.take_squeezed(UP, device)?;
    let down = group.take_flat(DOWN, device)?;
    check_size(group, [up.dims()[0], down.dims()[1]])?;
    let down = sum_chunks(group, down, up.dims()[1])?;
    Factors::of_two(group, KEYS, [up, down], axes.split_off(1))
}

/// `down [k · rank, fan_in] -> [rank, fan_in]`, the sum of its k chunks.
fn sum_chunks(group: &TensorGroup, down: Tensor<2>, rank: usize) -> Result<Tensor<2>, PatchError> {
    let [rows, fan_in] = down.dims();
    if rows == rank {
        return Ok(down);
    }
    if rank == 0 || rows == 0 || rows % rank != 0 {
        let why = format!(
            "`{UP}` has {rank} columns and `{DOWN}` has {rows} rows, expected as many or a multiple"
        );
        return Err(group.inconsistent(why));
    }
    let chunks = down
        .cast(FloatDType::F32)
        .reshape([rows / rank, rank, fan_in]);
    Ok(chunks.sum_dim(0).reshape([rank, fan_in]))
}

/// That the shape which the base is to be filled up to, where the file states one, is the factors' own.
fn check_reshape(group: &mut TensorGroup, shape: [usize; 2]) -> Result<(), PatchError> {
    if !group.has(RESHAPE) {
        return Ok(());
    }
    let data = group.take_data(RESHAPE)?;
    let stated = integers(RESHAPE, &data).map_err(|why| group.inconsistent(why))?;
    let fits = match stated.as_slice() {
        [d_output, rest @ ..] => {
            [*d_output, rest.iter().fold(1, |a, b| a.saturating_mul(*b))] == shape
        }
        [] => false,
    };
    if fits {
        return Ok(());
    }
    let why = format!("`{RESHAPE}` is {stated:?}, but `{UP}` and `{DOWN}` are for {shape:?}");
    Err(group.inconsistent(why))
}

fn take_bias(
    group: &mut TensorGroup,
    d_output: usize,
    device: &Device,
) -> Result<Option<Tensor<1>>, PatchError> {
    if !group.has(BIAS) {
        return Ok(None);
    }
    let bias = group.take::<1>(BIAS, device)?.cast(FloatDType::F32);
    let [found] = bias.dims();
    if found != d_output {
        let why = format!("`{BIAS}` has {found} elements, but `{UP}` has {d_output} rows");
        return Err(group.inconsistent(why));
    }
    Ok(Some(bias))
}

fn scaled(tensor: Tensor<2>, scale: f32) -> Tensor<2> {
    if scale == 1.0 {
        tensor
    } else {
        tensor.mul_scalar(scale)
    }
}

const KIND: &str = "lora";
const UP: &str = "lora_up.weight";
const DOWN: &str = "lora_down.weight";
const MID: &str = "lora_mid.weight";
const BIAS: &str = "lora_up.bias";
const RESHAPE: &str = "reshape_weight";
const EMBEDDING_A: &str = "lora_embedding_A";
const EMBEDDING_B: &str = "lora_embedding_B";
const KEYS: FactorKeys = FactorKeys {
    up: UP,
    mid: MID,
    down: DOWN,
    turns_up_beside_mid: false,
};
/// Spellings in files: PEFT's and diffusers' names; PEFT may write the adapter's name between.
const ALIASES: &[(&str, &str)] = &[
    ("lora_A", DOWN),
    ("lora_A.weight", DOWN),
    ("lora_A.*.weight", DOWN),
    ("lora.down.weight", DOWN),
    ("lora_linear_layer.down.weight", DOWN),
    ("lora_B", UP),
    ("lora_B.weight", UP),
    ("lora_B.*.weight", UP),
    ("lora.up.weight", UP),
    ("lora_linear_layer.up.weight", UP),
    ("lora_B.bias", BIAS),
    ("lora_B.*.bias", BIAS),
];
