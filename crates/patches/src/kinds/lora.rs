//! Low-rank adaptation, with an optional bias.
//!
//! `ΔW = scale · up · down`, `Δb = scale · bias`; `scale` is the file's own, else `alpha / rank`,
//! else 1. `up [d_output, rank]`, `down [rank, fan_in]`, `bias [d_output]`; the factors of a
//! convolution carry further dimensions, which are flattened.
//!
//! Three things found in files beside that: `down` with k times the rank of `up` stands for the sum of its k
//! chunks, with `rank` = rows of `down`; a sparse triple is a residual on the bias (one dimension)
//! or on the weight (more), scaled alike; factors of two dtypes are brought to f32.
//!
//! Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.

use std::{ops::Range, sync::Arc};

use burn::tensor::{DType, Device, FloatDType, Tensor};

use crate::{
    BaseLayer, Patch, PatchError, PatchKind, TensorGroup, group::checked_product,
    sparse::SparseResidual, tensor_bytes,
};

inventory::submit! {
    PatchKind::new(KIND, &[&[UP, DOWN]], load)
        .with_optional(&[
            "alpha", "scale", BIAS, "bias_indices", "bias_values", "bias_size",
        ])
        .with_aliases(ALIASES)
        .with_rank_key(DOWN)
}

#[derive(Clone, Debug)]
struct Lora {
    /// `[d_output, rank]`.
    up: Tensor<2>,
    /// `[rank, fan_in]`.
    down: Tensor<2>,
    /// Factor on `up · down`.
    scale: f32,
    /// Δb, already scaled, f32 `[d_output]`.
    bias: Option<Tensor<1>>,
    /// A further ΔW, to be scaled.
    weight_residual: Option<Arc<SparseResidual>>,
}

fn load(mut group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let up = group.take_squeezed(UP, device)?;
    let down = group.take_flat(DOWN, device)?;
    check_size(&group, [up.dims()[0], down.dims()[1]])?;
    let scale = take_scale(&mut group, down.dims()[0])?;
    let down = sum_chunks(&group, down, up.dims()[1])?;
    let (up, down) = one_dtype(up, down);
    let shape = [up.dims()[0], down.dims()[1]];
    let dense = take_bias(&mut group, shape[0], device)?;
    let (sparse, weight_residual) = match SparseResidual::take(&mut group)? {
        Some(residual) => split_residual(&group, residual, shape, device)?,
        None => (None, None),
    };
    let bias = match (dense, sparse) {
        (Some(dense), Some(sparse)) => Some(dense + sparse),
        (dense, sparse) => dense.or(sparse),
    };
    let bias = bias.map(|bias| bias.mul_scalar(scale));
    let weight_residual = weight_residual.map(Arc::new);
    Ok(Arc::new(Lora {
        up,
        down,
        scale,
        bias,
        weight_residual,
    }))
}

impl Patch for Lora {
    fn kind(&self) -> &str {
        KIND
    }

    fn check(&self, base: [usize; 2]) -> Result<(), PatchError> {
        let patch = self.shape();
        if patch == base {
            return Ok(());
        }
        Err(PatchError::DoesNotFit {
            kind: KIND.into(),
            patch,
            base,
        })
    }

    fn delta_weight(&self, _base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let mut delta = wide(&self.up).matmul(wide(&self.down));
        if let Some(residual) = &self.weight_residual {
            delta = delta + residual.to_dense(self.shape(), &self.up.device());
        }
        Ok(Some(scaled(delta, self.scale)))
    }

    fn delta_bias(&self) -> Option<Tensor<1>> {
        self.bias.clone()
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        if self.weight_residual.is_some() {
            return None;
        }
        let dtype: FloatDType = input.dtype().into();
        // The scale goes on the narrow product: rank columns instead of d_output.
        let narrow = scaled(
            wide(&input).matmul(wide(&self.down).transpose()),
            self.scale,
        );
        Some(narrow.matmul(wide(&self.up).transpose()).cast(dtype))
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        let [d_output, rank] = self.up.dims();
        if rows.is_empty() || rows.end > d_output || self.weight_residual.is_some() {
            return None;
        }
        Some(Arc::new(Self {
            up: self.up.clone().slice([rows.clone(), 0..rank]),
            bias: self.bias.clone().map(|bias| bias.slice([rows])),
            ..self.clone()
        }))
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        let dtype = if device.supports_dtype(dtype) {
            dtype
        } else {
            FloatDType::F32
        };
        Arc::new(Self {
            up: move_tensor(self.up.clone(), device, dtype),
            down: move_tensor(self.down.clone(), device, dtype),
            bias: self.bias.clone().map(|bias| bias.to_device(device)),
            ..self.clone()
        })
    }

    fn num_bytes(&self) -> usize {
        let residual = self
            .weight_residual
            .as_ref()
            .map_or(0, |sparse| sparse.num_bytes());
        let bias = self.bias.as_ref().map_or(0, tensor_bytes);
        tensor_bytes(&self.up) + tensor_bytes(&self.down) + bias + residual
    }
}

impl Lora {
    /// `[d_output, fan_in]`.
    fn shape(&self) -> [usize; 2] {
        [self.up.dims()[0], self.down.dims()[1]]
    }
}

/// No layer is without inputs or outputs, and in a reshape Burn takes a size of 0 for "as before".
fn check_size(group: &TensorGroup, shape: [usize; 2]) -> Result<(), PatchError> {
    if shape.contains(&0) {
        let why = format!("the patch is for a weight of shape {shape:?}, which has no values");
        return Err(inconsistent(group, why));
    }
    Ok(())
}

fn take_scale(group: &mut TensorGroup, rank: usize) -> Result<f32, PatchError> {
    let alpha = finite(group, "alpha")?;
    let scale = finite(group, "scale")?;
    if rank == 0 {
        return Err(inconsistent(
            group,
            format!("`{DOWN}` has no rows, so the rank is 0"),
        ));
    }
    Ok(scale
        .or(alpha.map(|alpha| alpha / rank as f32))
        .unwrap_or(1.0))
}

fn finite(group: &mut TensorGroup, key: &str) -> Result<Option<f32>, PatchError> {
    match group.take_scalar(key)? {
        Some(value) if !value.is_finite() => Err(inconsistent(
            group,
            format!("`{key}` is {value}, expected a finite number"),
        )),
        value => Ok(value),
    }
}

/// `down [k · rank, fan_in] -> [rank, fan_in]`, the sum of its k chunks.
fn sum_chunks(group: &TensorGroup, down: Tensor<2>, rank: usize) -> Result<Tensor<2>, PatchError> {
    let [rows, fan_in] = down.dims();
    if rows == rank {
        return Ok(down);
    }
    if rank == 0 || rows % rank != 0 {
        let why = format!(
            "`{UP}` has {rank} columns and `{DOWN}` has {rows} rows, expected as many or a multiple"
        );
        return Err(inconsistent(group, why));
    }
    let chunks = down
        .cast(FloatDType::F32)
        .reshape([rows / rank, rank, fan_in]);
    Ok(chunks.sum_dim(0).reshape([rank, fan_in]))
}

fn one_dtype(up: Tensor<2>, down: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    if up.dtype() == down.dtype() {
        return (up, down);
    }
    (up.cast(FloatDType::F32), down.cast(FloatDType::F32))
}

fn take_bias(
    group: &mut TensorGroup,
    d_output: usize,
    device: &Device,
) -> Result<Option<Tensor<1>>, PatchError> {
    if !group.tensors.contains_key(BIAS) {
        return Ok(None);
    }
    let bias = group.take::<1>(BIAS, device)?.cast(FloatDType::F32);
    let [found] = bias.dims();
    if found != d_output {
        let why = format!("`{BIAS}` has {found} elements, but `{UP}` has {d_output} rows");
        return Err(inconsistent(group, why));
    }
    Ok(Some(bias))
}

type SplitResidual = (Option<Tensor<1>>, Option<SparseResidual>);

/// A residual of one dimension is the bias's, any other the weight's.
fn split_residual(
    group: &TensorGroup,
    residual: SparseResidual,
    [d_output, fan_in]: [usize; 2],
    device: &Device,
) -> Result<SplitResidual, PatchError> {
    match residual.size() {
        [rows] if *rows == d_output => {
            let row = residual.to_dense([1, d_output], device);
            Ok((Some(row.reshape([d_output])), None))
        }
        [rows, rest @ ..]
            if !rest.is_empty() && *rows == d_output && checked_product(rest) == Some(fan_in) =>
        {
            Ok((None, Some(residual)))
        }
        size => {
            let why =
                format!("`bias_size` is {size:?}, expected [{d_output}] or [{d_output}, {fan_in}]");
            Err(inconsistent(group, why))
        }
    }
}

fn inconsistent(group: &TensorGroup, why: String) -> PatchError {
    PatchError::Inconsistent {
        target: group.target.clone(),
        why,
    }
}

/// The tensor in f32, which all arithmetic is in: f16 cannot hold the products of small factors, and bf16
/// would round the narrow product a second time.
fn wide(tensor: &Tensor<2>) -> Tensor<2> {
    if tensor.dtype() == DType::F32 {
        return tensor.clone();
    }
    tensor.clone().cast(FloatDType::F32)
}

fn scaled(tensor: Tensor<2>, scale: f32) -> Tensor<2> {
    if scale == 1.0 {
        tensor
    } else {
        tensor.mul_scalar(scale)
    }
}

/// Casts on the side whose dtypes are known to be there: the old device when it has the new dtype.
fn move_tensor(tensor: Tensor<2>, device: &Device, dtype: FloatDType) -> Tensor<2> {
    if tensor.device().supports_dtype(DType::from(dtype)) {
        return tensor.cast(dtype).to_device(device);
    }
    tensor.to_device(device).cast(dtype)
}

const KIND: &str = "lora";
const UP: &str = "lora_up.weight";
const DOWN: &str = "lora_down.weight";
const BIAS: &str = "lora_up.bias";
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
