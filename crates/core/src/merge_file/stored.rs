//! The types merged tensors are stored in, and the addition that rounds to them once.

use burn::tensor::{bf16, f16};
use rayon::prelude::*;

/// A float type that a sum is rounded to, to the nearest and in a tie to the even one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredFloat {
    F32,
    F16,
    Bf16,
}

impl StoredFloat {
    /// The type of a safetensors tag; `None` for types that nothing is merged into.
    pub(super) fn of_tag(tag: &str) -> Option<Self> {
        match tag {
            "F32" => Some(Self::F32),
            "F16" => Some(Self::F16),
            "BF16" => Some(Self::Bf16),
            _ => None,
        }
    }

    /// The values of little-endian `bytes`.
    pub(super) fn values(self, bytes: &[u8]) -> Vec<f32> {
        let chunks = bytes.par_chunks(self.num_bytes());
        chunks
            .with_min_len(CHUNK_LEN)
            .map(|bytes| self.read(bytes))
            .collect()
    }

    fn num_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    fn read(self, bytes: &[u8]) -> f32 {
        match (self, bytes) {
            (Self::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Self::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
            (Self::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
            _ => unreachable!("the bytes are cut by `num_bytes`"),
        }
    }

    /// Writes the rounded `value`, and returns what it became.
    fn write(self, value: f32, bytes: &mut [u8]) -> f32 {
        match self {
            Self::F32 => {
                bytes.copy_from_slice(&value.to_le_bytes());
                value
            }
            Self::F16 => {
                let rounded = f16::from_f32(value);
                bytes.copy_from_slice(&rounded.to_le_bytes());
                rounded.to_f32()
            }
            Self::Bf16 => {
                let rounded = bf16::from_f32(value);
                bytes.copy_from_slice(&rounded.to_le_bytes());
                rounded.to_f32()
            }
        }
    }
}

/// A stored matrix and a residual on it, of as many rows; either may have fewer columns, or none at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    num_rows: usize,
    base: &'a [u8],
    delta: &'a [f32],
}

impl<'a> Rows<'a> {
    pub(super) fn new(num_rows: usize, base: &'a [u8], delta: &'a [f32]) -> Self {
        Self {
            num_rows,
            base,
            delta,
        }
    }

    /// `base + delta`, rounded once; a column that one of them lacks is zero there. `None` where a finite base
    /// value became one that is not.
    pub(super) fn merged(self, float: StoredFloat) -> Option<Vec<u8>> {
        let base_bytes = self.base.len() / self.num_rows.max(1);
        let delta_len = self.delta.len() / self.num_rows.max(1);
        let row_bytes = base_bytes.max(delta_len * float.num_bytes());
        let mut merged = vec![0; row_bytes * self.num_rows];
        let merge = |(index, row): (usize, &mut [u8])| {
            let base = &self.base[index * base_bytes..][..base_bytes];
            let delta = &self.delta[index * delta_len..][..delta_len];
            merge_row(float, base, delta, row)
        };
        let is_whole = merged
            .par_chunks_mut(row_bytes.max(1))
            .with_min_len((CHUNK_LEN / row_bytes.max(1)).max(1))
            .enumerate()
            .map(merge)
            .reduce(|| true, |a, b| a && b);
        is_whole.then_some(merged)
    }
}

/// Writes `base + delta` to `row`; whether every value that was finite still is.
fn merge_row(float: StoredFloat, base: &[u8], delta: &[f32], row: &mut [u8]) -> bool {
    let size = float.num_bytes();
    let num_both = (base.len() / size).min(delta.len());
    let (both, rest) = row.split_at_mut(num_both * size);
    let (base, base_rest) = base.split_at(num_both * size);
    let (delta, delta_rest) = delta.split_at(num_both);
    let mut is_whole = true;
    let cells = both.chunks_exact_mut(size).zip(base.chunks_exact(size));
    for ((cell, base), delta) in cells.zip(delta) {
        let base = float.read(base);
        is_whole &= float.write(base + delta, cell).is_finite() || !base.is_finite();
    }
    if delta_rest.is_empty() {
        rest[..base_rest.len()].copy_from_slice(base_rest);
    }
    for (cell, delta) in rest.chunks_exact_mut(size).zip(delta_rest) {
        is_whole &= float.write(*delta, cell).is_finite();
    }
    is_whole
}

/// Values a task works on at least.
const CHUNK_LEN: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(float: StoredFloat, values: &[f32]) -> Vec<u8> {
        let mut bytes = vec![0; values.len() * float.num_bytes()];
        for (value, cell) in values.iter().zip(bytes.chunks_exact_mut(float.num_bytes())) {
            float.write(*value, cell);
        }
        bytes
    }

    #[test]
    fn sums_are_rounded_once() {
        // bf16's next number after 1 is 1 + 2^-7; added in thirds and rounded each time, 1 would stay 1.
        let (base, delta) = (1.0, [3.0 * 2_f32.powi(-9)]);
        let float = StoredFloat::Bf16;
        let merged = Rows::new(1, &bytes(float, &[base]), &delta).merged(float);
        assert_eq!(
            float.values(&merged.unwrap_or_default()),
            [1.0 + 2_f32.powi(-7)]
        );
    }

    #[test]
    fn either_may_be_wider() {
        for float in [StoredFloat::F32, StoredFloat::F16, StoredFloat::Bf16] {
            let check = |base: &[f32], delta: &[f32], expected: &[f32]| {
                let merged = Rows::new(2, &bytes(float, base), delta).merged(float);
                assert_eq!(
                    float.values(&merged.unwrap_or_default()),
                    expected,
                    "{float:?}"
                );
            };
            check(&[1.0, 2.0], &[0.5, 0.25], &[1.5, 2.25]);
            check(&[1.0, 2.0, 3.0, 4.0], &[0.5, 0.25], &[1.5, 2.0, 3.25, 4.0]);
            check(&[1.0, 2.0], &[0.5, 3.0, 0.25, 4.0], &[1.5, 3.0, 2.25, 4.0]);
            check(&[], &[0.5, 0.25], &[0.5, 0.25]);
            check(&[], &[], &[]);
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_told() {
        let float = StoredFloat::F16;
        assert_eq!(
            Rows::new(1, &bytes(float, &[60_000.0]), &[60_000.0]).merged(float),
            None
        );
        let kept = Rows::new(1, &bytes(float, &[f32::INFINITY]), &[1.0]).merged(float);
        assert!(kept.is_some(), "the base had it already");
    }
}
