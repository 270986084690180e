//! The low-rank part of a weight: `svd_up` `[d_output, rank]` times `svd_down` `[rank, d_input]`, or both transposed where
//! they are kept for products of integers.
//!
//! Where its factors are narrower than f32, SDNQ rounds in between, and so does this: for matrices the scaled values before
//! the product is added, for convolutions the product.

use half::{bf16, f16};

use crate::{Part, Parts, QuantError, expect_part, kernels::Scalars};

use super::{layout::Layout, scales::expect_numbers};

pub(super) const UP: &str = "svd_up";
pub(super) const DOWN: &str = "svd_down";

/// The two factors.
pub(super) struct Svd<'a> {
    up: Scalars<'a>,
    down: Scalars<'a>,
    rank: usize,
    shape: [usize; 2],
    is_transposed: bool,
    is_conv: bool,
    /// To the type of the factors.
    round: fn(f32) -> f32,
}

impl<'a> Svd<'a> {
    /// Those of a validated weight of `shape` `[d_output, d_input]`, where it has any.
    pub(super) fn of(parts: &'a Parts, shape: [usize; 2], layout: &Layout) -> Option<Self> {
        let up = parts.get(UP)?;
        let down = parts.get(DOWN).and_then(Part::scalars)?;
        Some(Self {
            up: up.scalars()?,
            down,
            rank: down.len().checked_div(shape[1])?,
            shape,
            is_transposed: layout.has_transposed_svd,
            is_conv: layout.is_conv,
            round: match up.tag.as_str() {
                "BF16" => |value| bf16::from_f32(value).to_f32(),
                "F16" => |value| f16::from_f32(value).to_f32(),
                _ => |value| value,
            },
        })
    }

    /// Adds row `row` of the product to `values`.
    pub(super) fn add(&self, row: usize, values: &mut [f32]) {
        let mut products = vec![0.0; values.len()];
        for k in 0..self.rank {
            let (up, first, step) = self.places(row, k);
            let factor = self.up.get(up);
            for (column, product) in products.iter_mut().enumerate() {
                *product += factor * self.down.get(first + column * step);
            }
        }
        for (value, product) in values.iter_mut().zip(products) {
            *value = if self.is_conv {
                *value + (self.round)(product)
            } else {
                (self.round)((self.round)(*value) + product)
            };
        }
    }

    /// Where factor `k` of row `row` is in `up`, and where its columns begin in `down` and how far apart they are.
    fn places(&self, row: usize, k: usize) -> (usize, usize, usize) {
        let [d_output, d_input] = self.shape;
        if self.is_transposed {
            (k * d_output + row, k, self.rank)
        } else {
            (row * self.rank + k, k * d_input, 1)
        }
    }
}

/// Checks the factors of a matrix `[d_output, d_input]`, where there are any.
pub(super) fn validate(
    format: &'static str,
    [d_output, d_input]: [usize; 2],
    parts: &Parts,
) -> Result<(), QuantError> {
    let Some(up) = parts.get(UP) else {
        return match parts.get(DOWN) {
            Some(_) => Err(QuantError::MissingPart { format, part: UP }),
            None => Ok(()),
        };
    };
    let num_up = up.scalars().map_or(0, |numbers| numbers.len());
    let rank = num_up.checked_div(d_output).unwrap_or(0);
    expect_numbers(format, parts, UP, rank.saturating_mul(d_output))?;
    if d_input == 0 {
        return expect_part(format, parts, DOWN, 0);
    }
    expect_numbers(format, parts, DOWN, rank.saturating_mul(d_input))
}
