//! Sums of what patches add: factors joined into one pair, matrices of different widths, features.

use burn::tensor::{DType, Tensor};
use overglaze_patches::{Feature, LowRank};

/// One pair of factors whose product is the sum of the products, each times its strength.
pub(crate) fn joined(factors: Vec<(LowRank, f32)>) -> Option<LowRank> {
    let width = factors.iter().map(|(pair, _)| pair.down.dims()[1]).max()?;
    let (ups, downs): (Vec<_>, Vec<_>) = factors
        .into_iter()
        .map(|(LowRank { up, down }, strength)| {
            let down = widened(down, width);
            if up.dims()[0] < width {
                (scaled(up, strength), down)
            } else {
                (up, scaled(down, strength))
            }
        })
        .unzip();
    Some(LowRank {
        up: cat(ups, 1),
        down: cat(downs, 0),
    })
}

pub(crate) fn cat(mut tensors: Vec<Tensor<2>>, dim: usize) -> Tensor<2> {
    if tensors.len() == 1 {
        return tensors.remove(0);
    }
    Tensor::cat(tensors, dim)
}

/// The first `width` columns of `input`.
pub(crate) fn first_columns(input: &Tensor<2>, width: usize) -> Tensor<2> {
    let [num_rows, d_input] = input.dims();
    if width >= d_input {
        return input.clone();
    }
    input.clone().slice([0..num_rows, 0..width])
}

/// `matrix` with columns of zeros behind it, up to `width`.
pub(crate) fn widened(matrix: Tensor<2>, width: usize) -> Tensor<2> {
    let [num_rows, columns] = matrix.dims();
    if columns >= width {
        return matrix;
    }
    let zeros = Tensor::zeros([num_rows, width], (&matrix.device(), matrix.dtype()));
    zeros.slice_assign([0..num_rows, 0..columns], matrix)
}

/// `sum + term`; the narrower of the two counts as zero in the columns it lacks.
pub(crate) fn add_widened(sum: &mut Option<Tensor<2>>, term: Tensor<2>) {
    *sum = Some(match sum.take() {
        Some(sum) => {
            let width = sum.dims()[1].max(term.dims()[1]);
            widened(sum, width) + widened(term, width)
        }
        None => term,
    });
}

pub(crate) fn add_feature(sum: &mut Option<Feature>, term: Feature) {
    *sum = Some(match (sum.take(), term) {
        (Some(Feature::Plane(sum)), Feature::Plane(term)) => Feature::Plane(sum + term),
        (Some(Feature::Volume(sum)), Feature::Volume(term)) => Feature::Volume(sum + term),
        (_, term) => term,
    });
}

pub(crate) fn scaled<const D: usize>(term: Tensor<D>, strength: f32) -> Tensor<D> {
    debug_assert_eq!(term.dtype(), DType::F32, "residuals are f32");
    if strength == 1.0 {
        term
    } else {
        term.mul_scalar(strength)
    }
}

pub(crate) fn accumulate<const D: usize>(sum: &mut Option<Tensor<D>>, term: Tensor<D>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + term,
        None => term,
    });
}
