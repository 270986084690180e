//! Convolutions of any number of axes as Burn's own of two and three: ranks that are known to be equal, features, and
//! options.

use burn::tensor::{Tensor, ops::ConvOptions};
use overglaze_patches::{ConvGeometry, Feature};

pub(crate) fn options<const N: usize>(geometry: &ConvGeometry) -> ConvOptions<N> {
    let padding = array::<N, [usize; 2]>(&geometry.padding).map(|[before, after]| (before, after));
    let (stride, dilation) = (array(&geometry.stride), array(&geometry.dilation));
    ConvOptions::new_with_padding(stride, padding, dilation, geometry.groups)
}

/// A tensor whose rank `D` is known to be `E`.
pub(crate) fn ranked<const D: usize, const E: usize>(tensor: Tensor<D>) -> Tensor<E> {
    let dims = array(&tensor.dims());
    tensor.reshape::<E, [usize; E]>(dims)
}

/// A layer's input as patches see it: one axis is a plane of height 1.
pub(crate) fn feature_of<const D: usize>(input: Tensor<D>) -> Feature {
    match D {
        3 => {
            let [batch, channels, width] = array(&input.dims());
            Feature::Plane(input.reshape([batch, channels, 1, width]))
        }
        4 => Feature::Plane(ranked(input)),
        _ => Feature::Volume(ranked(input)),
    }
}

/// Undoes [`feature_of`].
pub(crate) fn tensor_of<const D: usize>(feature: Feature) -> Tensor<D> {
    match feature {
        Feature::Plane(plane) if D == 3 => {
            let [batch, channels, _, width] = plane.dims();
            plane.reshape(array::<D, usize>(&[batch, channels, width]))
        }
        Feature::Plane(plane) => ranked(plane),
        Feature::Volume(volume) => ranked(volume),
    }
}

/// A bias `[d_output]` as `[1, d_output, 1, …]`.
pub(crate) fn per_channel<const D: usize>(bias: Tensor<1>) -> Tensor<D> {
    let mut dims = [1; D];
    dims[1] = bias.dims()[0];
    bias.reshape(dims)
}

/// The one axis of a layer that states a number.
pub(crate) fn one(values: &[usize]) -> usize {
    values[0]
}

pub(crate) fn array<const N: usize, T: Copy>(values: &[T]) -> [T; N] {
    std::array::from_fn(|axis| values[axis])
}
