//! Patches of parts of a fused weight, as one patch of the whole.
//!
//! A checkpoint that keeps q, k and v in one weight `[3d, d]` gets the patches of `to_q`, `to_k` and
//! `to_v` at rows `0..d`, `d..2d`, `2d..3d`:  ΔW = the parts' residuals one under another, zero
//! where no part lies. The parts keep their own ranks and scales; no block-diagonal factor is built.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use burn::tensor::{DType, Device, FloatDType, Tensor};

use crate::{BaseAccess, BaseLayer, Patch, PatchError, slice_rows};

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

    fn with_patches(&self, change: impl Fn(&dyn Patch) -> Arc<dyn Patch>) -> Self {
        let parts = self.parts.iter().map(|part| RowPart {
            rows: part.rows.clone(),
            patch: change(part.patch.as_ref()),
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

    fn check(&self, base: [usize; 2]) -> Result<(), PatchError> {
        if base[0] != self.d_output {
            let patch = [self.d_output, base[1]];
            return Err(PatchError::DoesNotFit {
                kind: self.kind.clone(),
                patch,
                base,
            });
        }
        self.parts
            .iter()
            .try_for_each(|part| part.patch.check([part.rows.len(), base[1]]))
    }

    fn delta_weight(&self, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        let mut pieces = Vec::new();
        for part in &self.parts {
            if let Some(delta) = delta_of(part, base)? {
                pieces.push((part.rows.clone(), delta.cast(FloatDType::F32)));
            }
        }
        Ok(lay(pieces, self.d_output, 0))
    }

    fn delta_bias(&self) -> Option<Tensor<1>> {
        let pieces = self.parts.iter().filter_map(|part| {
            Some((
                part.rows.clone(),
                part.patch.delta_bias()?.cast(FloatDType::F32),
            ))
        });
        lay(pieces.collect(), self.d_output, 0)
    }

    fn sidecar_linear(&self, input: Tensor<2>) -> Option<Tensor<2>> {
        let dtype: FloatDType = input.dtype().into();
        let pieces = self.parts.iter().map(|part| {
            let output = part.patch.sidecar_linear(input.clone())?;
            Some((part.rows.clone(), output.cast(dtype)))
        });
        lay(pieces.collect::<Option<_>>()?, self.d_output, 1)
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

fn delta_of(part: &RowPart, base: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
    let fan_in = base.shape[1];
    let rows = base
        .weight
        .map(|weight| weight.clone().slice([part.rows.clone(), 0..fan_in]));
    let sliced = BaseLayer {
        shape: [part.rows.len(), fan_in],
        weight: rows.as_ref(),
    };
    part.patch.delta_weight(&sliced)
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
    let (device, dtype, shape) = (first.device(), first.dtype(), first.dims());
    let zeros = |length: usize| zeros_like(shape, dim, length, (&device, dtype));
    let mut laid = Vec::with_capacity(2 * pieces.len() + 1);
    let mut end = 0;
    for (range, piece) in pieces {
        if range.start > end {
            laid.push(zeros(range.start - end));
        }
        end = range.end;
        laid.push(piece);
    }
    if end < length {
        laid.push(zeros(length - end));
    }
    Some(Tensor::cat(laid, dim))
}

fn zeros_like<const D: usize>(
    mut shape: [usize; D],
    dim: usize,
    length: usize,
    place: (&Device, DType),
) -> Tensor<D> {
    shape[dim] = length;
    Tensor::zeros(shape, place)
}
