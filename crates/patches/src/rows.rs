//! Patches of parts of a fused weight, as one patch of the whole.
//!
//! A checkpoint that keeps q, k and v in one weight `[3d, d]` gets the patches of `to_q`, `to_k` and
//! `to_v` at rows `0..d`, `d..2d`, `2d..3d`:  ΔW = the parts' residuals one under another, zero
//! where no part lies. The parts keep their own ranks and scales; no block-diagonal factor is built.
//! A part without a sidecar is multiplied by its own ΔW, the others stay narrow; only a part that reads the
//! base makes the whole go through ΔW, as the base has to be decoded for it anyway.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    BaseAccess, BaseLayer, LayerShape, Patch, PatchError, Replaced, patch::wide,
    scaled::at_strength, slice_rows,
};

/// A patch and the rows of the larger weight it is for.
#[derive(Clone, Debug)]
pub struct RowPart {
    /// Rows `[start, end)` of the larger weight.
    pub rows: Range<usize>,
    /// The patch of a weight `[rows.len(), fan_in]`.
    pub patch: Arc<dyn Patch>,
}

/// Patches laid into disjoint row ranges of one weight `[d_output, fan_in]`; any rows may be bare.
#[derive(Clone, Debug)]
pub struct RowRanges {
    kind: String,
    d_output: usize,
    parts: Vec<RowPart>,
}

impl RowRanges {
    /// Lays `parts`, in any order, over a weight of `d_output` rows.
    ///
    /// # Errors
    /// [`PatchError::RowsOutside`] for an empty range or one that leaves the weight,
    /// [`PatchError::RowsOverlap`] for two that meet.
    pub fn new(d_output: usize, mut parts: Vec<RowPart>) -> Result<Self, PatchError> {
        parts.sort_by_key(|part| part.rows.start);
        for RowPart { rows, .. } in &parts {
            if rows.is_empty() || rows.end > d_output {
                return Err(PatchError::RowsOutside {
                    rows: rows.clone(),
                    d_output,
                });
            }
        }
        for pair in parts.windows(2) {
            let (first, second) = (pair[0].rows.clone(), pair[1].rows.clone());
            if first.end > second.start {
                return Err(PatchError::RowsOverlap { first, second });
            }
        }
        Ok(Self {
            kind: joined_kinds(&parts),
            d_output,
            parts,
        })
    }

    /// The parts, by row.
    #[must_use]
    pub fn parts(&self) -> &[RowPart] {
        &self.parts
    }

    fn with_patches(&self, change: impl Fn(&Arc<dyn Patch>) -> Arc<dyn Patch>) -> Self {
        let parts = self.parts.iter().map(|part| RowPart {
            rows: part.rows.clone(),
            patch: change(&part.patch),
        });
        Self {
            parts: parts.collect(),
            ..self.clone()
        }
    }
}

impl Patch for RowRanges {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn base_access(&self) -> BaseAccess {
        let needs_values = self
            .parts
            .iter()
            .any(|part| part.patch.base_access() == BaseAccess::Weight);
        if needs_values {
            BaseAccess::Weight
        } else {
            BaseAccess::Shape
        }
    }

    fn check(&self, layer: &LayerShape) -> Result<(), PatchError> {
        if layer.d_output() != self.d_output {
            return Err(PatchError::DoesNotFit {
                kind: self.kind.clone(),
                patch: [self.d_output, layer.fan_in()],
                base: layer.dims().into(),
            });
        }
        self.parts
            .iter()
            .try_for_each(|part| part.patch.check(&layer.with_rows(part.rows.len())))
    }

    fn replaces(&self) -> Replaced {
        let mut replaced = Replaced::default();
        for part in &self.parts {
            let of_part = part.patch.replaces();
            replaced.weight |= of_part.weight;
            replaced.bias |= of_part.bias;
        }
        replaced
    }

    fn at_strength(&self, strength: f32) -> Option<Arc<dyn Patch>> {
        let is_proportional = |part: &RowPart| part.patch.at_strength(strength).is_none();
        if self.parts.iter().all(is_proportional) {
            return None;
        }
        Some(Arc::new(
            self.with_patches(|patch| at_strength(patch, strength)),
        ))
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let mut pieces = Vec::new();
        for part in &self.parts {
            if let Some(delta) = with_rows_of(base, part, |rows| part.patch.delta_weight(rows))? {
                pieces.push((part.rows.clone(), wide(&delta)));
            }
        }
        Ok(lay(pieces, self.d_output, 0))
    }

    fn changes_bias(&self) -> bool {
        self.parts.iter().any(|part| part.patch.changes_bias())
    }

    fn delta_bias(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<1>>, PatchError> {
        let mut pieces = Vec::new();
        for part in &self.parts {
            if let Some(delta) = with_rows_of(base, part, |rows| part.patch.delta_bias(rows))? {
                pieces.push((part.rows.clone(), wide(&delta)));
            }
        }
        Ok(lay(pieces, self.d_output, 0))
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        let mut pieces = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            if let Some(output) = output_of(part, &input)? {
                pieces.push((part.rows.clone(), output));
            }
        }
        lay(pieces, self.d_output, 1)
    }

    fn slice_rows(&self, rows: Range<usize>) -> Option<Arc<dyn Patch>> {
        let parts = self.parts.iter().filter_map(|part| overlap_of(part, &rows));
        let sliced = Self::new(rows.len(), parts.collect()).ok()?;
        (rows.end <= self.d_output).then(|| Arc::new(sliced) as Arc<dyn Patch>)
    }

    fn to_device(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        Arc::new(self.with_patches(|patch| patch.to_device(device, dtype)))
    }

    fn num_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.patch.num_bytes()).sum()
    }
}

fn joined_kinds(parts: &[RowPart]) -> String {
    let kinds: BTreeSet<_> = parts.iter().map(|part| part.patch.kind()).collect();
    kinds.into_iter().collect::<Vec<_>>().join("+")
}

/// What `ask` answers of the rows of `base` that `part` is for.
fn with_rows_of<T>(
    base: &BaseLayer<'_>,
    part: &RowPart,
    ask: impl FnOnce(&BaseLayer<'_>) -> T,
) -> T {
    let rows = || part.rows.clone();
    let shape = base.shape.with_rows(part.rows.len());
    let weight = base.weight;
    let weight = weight.map(|weight| weight.clone().slice([rows(), 0..weight.dims()[1]]));
    let bias = base.bias.map(|bias| bias.clone().slice([rows()]));
    ask(&BaseLayer {
        shape: &shape,
        weight: weight.as_ref(),
        bias: bias.as_ref(),
    })
}

/// `input · ΔWᵀ` of one part, `[rows, d_input] -> [rows, part.rows.len()]`: by its factors or its sidecar, or by
/// its own ΔW where it has none. The outer `None` is a part that reads the base, whose values a sidecar does not
/// see, or that fails; the inner one a part without ΔW.
fn output_of(part: &RowPart, input: &Tensor<2>) -> Option<Option<Tensor<2>>> {
    let patch = &part.patch;
    let shape = LayerShape::linear(part.rows.len(), input.dims()[1]);
    if let Some(factors) = patch.low_rank() {
        let narrow = input.clone().matmul(factors.down.transpose());
        return Some(Some(narrow.matmul(factors.up.transpose())));
    }
    if let Some(output) = patch.sidecar_linear(input.clone()) {
        return Some(Some(output));
    }
    if patch.base_access() == BaseAccess::Weight {
        return None;
    }
    let delta = patch.delta_weight(&BaseLayer::of_shape(&shape)).ok()?;
    Some(delta.map(|delta| input.clone().matmul(wide(&delta).transpose())))
}

/// What of `part` lies in `rows`, counted from the start of `rows`.
fn overlap_of(part: &RowPart, rows: &Range<usize>) -> Option<RowPart> {
    let start = part.rows.start.max(rows.start);
    let end = part.rows.end.min(rows.end);
    if start >= end {
        return None;
    }
    let within_part = start - part.rows.start..end - part.rows.start;
    let patch = if within_part.len() == part.rows.len() {
        part.patch.clone()
    } else {
        slice_rows(&part.patch, within_part)
    };
    Some(RowPart {
        rows: start - rows.start..end - rows.start,
        patch,
    })
}

/// Joins `pieces` along `dim`, each at its range, with zeros between; `None` when there is none.
fn lay<const D: usize>(
    pieces: Vec<(Range<usize>, Tensor<D>)>,
    length: usize,
    dim: usize,
) -> Option<Tensor<D>> {
    let (_, first) = pieces.first()?;
    let covered: usize = pieces.iter().map(|(range, _)| range.len()).sum();
    if covered == length {
        return Some(Tensor::cat(
            pieces.into_iter().map(|(_, piece)| piece).collect(),
            dim,
        ));
    }
    let mut shape = first.dims();
    shape[dim] = length;
    let zeros = Tensor::zeros(shape, (&first.device(), first.dtype()));
    let laid = pieces.into_iter().fold(zeros, |laid, (range, piece)| {
        let place = std::array::from_fn::<_, D, _>(|axis| {
            if axis == dim {
                range.clone()
            } else {
                0..shape[axis]
            }
        });
        laid.slice_assign(place, piece)
    });
    Some(laid)
}
