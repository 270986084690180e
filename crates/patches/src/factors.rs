//! Thin factors whose product is a weight, as several kinds have them.
//!
//! `up · down`, `up [d_output, rank]`, `down [rank, fan_in]`; or with the kernel of a convolution in a
//! middle factor (a Tucker decomposition, `down` then without kernel):
//! `Σₘₙ up[o, m] · mid[m, n, k] · down[n, i]`, `mid [m, n, kernel…]`. The factors stay in the file's dtype;
//! products are f32.
//!
//! Yeh et al., "Navigating Text-To-Image Customization: From LyCORIS Fine-Tuning to Model Evaluation", 2023,
//! section 3.1; LyCORIS, `functional/general.py`, `rebuild_tucker`.

use std::ops::Range;

use burn::tensor::{Device, FloatDType, Tensor};

use crate::{
    PatchError, TensorGroup,
    axes::check_size,
    group::checked_product,
    patch::{moved, tensor_bytes, wide},
};

/// The factors of one weight.
#[derive(Clone, Debug)]
pub(crate) struct Factors {
    /// `[d_output, m]`.
    up: Tensor<2>,
    /// `[m, n · kernel]`.
    mid: Option<Tensor<2>>,
    /// `[n, fan_in]`, or `[n, d_input]` beside `mid`.
    down: Tensor<2>,
    /// Axes of a row of the product, as far as the file states them: `[d_input, kernel…]` or `[fan_in]`.
    axes: Vec<usize>,
}

/// The keys of a weight's factors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FactorKeys {
    pub(crate) up: &'static str,
    pub(crate) mid: &'static str,
    pub(crate) down: &'static str,
    /// `up` beside a middle factor is `[m, d_output]`.
    pub(crate) turns_up_beside_mid: bool,
}

impl Factors {
    /// Removes the factors from `group`; the middle one may be missing.
    ///
    /// # Errors
    /// As [`TensorGroup::take`], or [`PatchError::Inconsistent`].
    pub(crate) fn take(
        group: &mut TensorGroup,
        keys: FactorKeys,
        device: &Device,
    ) -> Result<Self, PatchError> {
        let axes = after(&group.dims(keys.down), 1);
        let up = group.take_squeezed(keys.up, device)?;
        if !group.has(keys.mid) {
            let down = group.take_flat(keys.down, device)?;
            return Self::of_two(group, keys, [up, down], axes);
        }
        let down = group.take_squeezed(keys.down, device)?;
        let kernel = after(&group.dims(keys.mid), 2);
        let mid = group.take_flat(keys.mid, device)?;
        let up = if keys.turns_up_beside_mid {
            up.transpose()
        } else {
            up
        };
        Self::of_three(group, keys, [up, mid, down], &kernel)
    }

    /// What no absolute value in the product of the factors in `group` is above, as far as they can be multiplied.
    pub(crate) fn bound(group: &TensorGroup, keys: FactorKeys) -> f64 {
        let rows = |key| group.dims(key).first().map_or(1.0, |rows| *rows as f64);
        let num_terms = rows(keys.down) * rows(keys.mid);
        group.largest_product(&[keys.up, keys.mid, keys.down]) * num_terms
    }

    /// `up · down`; `axes` are those of a row of `down` in the file.
    ///
    /// # Errors
    /// [`PatchError::Inconsistent`].
    pub(crate) fn of_two(
        group: &TensorGroup,
        keys: FactorKeys,
        [up, down]: [Tensor<2>; 2],
        axes: Vec<usize>,
    ) -> Result<Self, PatchError> {
        check_size(group, [up.dims()[0], down.dims()[1]])?;
        let ([_, columns], [rows, _]) = (up.dims(), down.dims());
        if columns != rows {
            let why = format!(
                "`{}` has {columns} columns and `{}` has {rows} rows, expected as many",
                keys.up, keys.down
            );
            return Err(group.inconsistent(why));
        }
        check_rank(group, rows)?;
        Ok(Self {
            up,
            mid: None,
            down,
            axes,
        })
    }

    fn of_three(
        group: &TensorGroup,
        keys: FactorKeys,
        [up, mid, down]: [Tensor<2>; 3],
        kernel: &[usize],
    ) -> Result<Self, PatchError> {
        let [d_output, m] = up.dims();
        let [n, d_input] = down.dims();
        check_size(group, [d_output, d_input])?;
        check_rank(group, m.min(n))?;
        let kernel_elements = checked_product(kernel).unwrap_or(0);
        let columns = n.checked_mul(kernel_elements);
        if kernel_elements == 0 || mid.dims()[0] != m || columns != Some(mid.dims()[1]) {
            let why = format!(
                "`{}` has {} rows of {} elements, expected [{m}, {n}, kernel…] between `{}` and `{}`",
                keys.mid,
                mid.dims()[0],
                mid.dims()[1],
                keys.up,
                keys.down
            );
            return Err(group.inconsistent(why));
        }
        Ok(Self {
            up,
            mid: Some(mid),
            down,
            axes: [&[d_input], kernel].concat(),
        })
    }

    /// The product's shape as a matrix `[d_output, fan_in]`.
    pub(crate) fn shape(&self) -> [usize; 2] {
        let fan_in = match self.mid {
            Some(_) => self.axes.iter().product(),
            None => self.down.dims()[1],
        };
        [self.up.dims()[0], fan_in]
    }

    /// The product's shape, as far as the file states its axes.
    pub(crate) fn dims(&self) -> Vec<usize> {
        [&[self.up.dims()[0]], self.axes.as_slice()].concat()
    }

    /// Columns of `up`.
    pub(crate) fn rank(&self) -> usize {
        self.up.dims()[1]
    }

    /// `up [d_output, rank]` and `down [rank, fan_in]`, the middle factor multiplied in, f32.
    pub(crate) fn pair(&self) -> [Tensor<2>; 2] {
        let (up, down) = (wide(&self.up), wide(&self.down));
        match &self.mid {
            Some(mid) => [up, spread(wide(mid), down)],
            None => [up, down],
        }
    }

    /// The product `[d_output, fan_in]`, f32.
    pub(crate) fn product(&self) -> Tensor<2> {
        let [up, down] = self.pair();
        up.matmul(down)
    }

    /// Rows `rows` of the product; `None` when they lie outside of it.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Option<Self> {
        let d_output = self.up.dims()[0];
        if rows.is_empty() || rows.end > d_output {
            return None;
        }
        Some(Self {
            up: self.up.clone().slice_dim(0, rows),
            ..self.clone()
        })
    }

    /// A copy on `device` in `dtype` or a wider one.
    pub(crate) fn moved(&self, device: &Device, dtype: FloatDType) -> Self {
        Self {
            up: moved(&self.up, device, dtype),
            mid: self.mid.as_ref().map(|mid| moved(mid, device, dtype)),
            down: moved(&self.down, device, dtype),
            axes: self.axes.clone(),
        }
    }

    pub(crate) fn num_bytes(&self) -> usize {
        let mid = self.mid.as_ref().map_or(0, tensor_bytes);
        tensor_bytes(&self.up) + mid + tensor_bytes(&self.down)
    }
}

/// Puts the kernel of `mid [m, n · kernel]` behind every column of `down [n, d_input]`: `[m, d_input · kernel]`.
fn spread(mid: Tensor<2>, down: Tensor<2>) -> Tensor<2> {
    let ([m, columns], [n, d_input]) = (mid.dims(), down.dims());
    let kernel = columns / n;
    let by_position = mid.reshape([m, n, kernel]).swap_dims(1, 2);
    let spread = by_position.reshape([m * kernel, n]).matmul(down);
    let by_input = spread.reshape([m, kernel, d_input]).swap_dims(1, 2);
    by_input.reshape([m, d_input * kernel])
}

/// `dims` without its first `count` sizes.
fn after(dims: &[usize], count: usize) -> Vec<usize> {
    dims.iter().skip(count).copied().collect()
}

fn check_rank(group: &TensorGroup, rank: usize) -> Result<(), PatchError> {
    if rank == 0 {
        return Err(group.inconsistent("the rank is 0"));
    }
    Ok(())
}
