//! The low-rank part of a weight: `svd_up` `[d_output, rank]` times `svd_down` `[rank, d_input]`.
//!
//! Where its factors are narrower than f32, SDNQ rounds in between, and so does this: for matrices the scaled values before
//! the product is added, for convolutions the product.

use half::{bf16, f16};

use crate::{Part, Parts, kernels::Scalars};

pub(super) const UP: &str = "svd_up";
pub(super) const DOWN: &str = "svd_down";

/// The two factors.
pub(super) struct Svd<'a> {
    up: Scalars<'a>,
    down: Scalars<'a>,
    rank: usize,
    d_input: usize,
    /// To the type of the factors.
    round: fn(f32) -> f32,
}

impl<'a> Svd<'a> {
    /// Those of a validated weight, where it has any.
    pub(super) fn of(parts: &'a Parts, d_input: usize) -> Option<Self> {
        let up = parts.get(UP)?;
        let down = parts.get(DOWN).and_then(Part::scalars)?;
        Some(Self {
            up: up.scalars()?,
            down,
            rank: down.len().checked_div(d_input)?,
            d_input,
            round: match up.tag.as_str() {
                "BF16" => |value| bf16::from_f32(value).to_f32(),
                "F16" => |value| f16::from_f32(value).to_f32(),
                _ => |value| value,
            },
        })
    }

    /// Adds row `row` of the product to `values`.
    pub(super) fn add(&self, row: usize, is_conv: bool, values: &mut [f32]) {
        let mut products = vec![0.0; values.len()];
        for k in 0..self.rank {
            let factor = self.up.get(row * self.rank + k);
            for (column, product) in products.iter_mut().enumerate() {
                *product += factor * self.down.get(k * self.d_input + column);
            }
        }
        for (value, product) in values.iter_mut().zip(products) {
            *value = match is_conv {
                true => *value + (self.round)(product),
                false => (self.round)((self.round)(*value) + product),
            };
        }
    }
}
