//! Convolutions as patches see them: the input of a forward pass and the geometry of its layer.
//!
//! A convolution over one axis is one over a plane of height 1, so that there are two ranks and not three.

use std::ops::Range;

use burn::tensor::{
    Tensor,
    module::{conv2d, conv3d},
    ops::ConvOptions,
};

/// Channels over two or three axes, in f32.
#[derive(Clone, Debug)]
pub enum Feature {
    /// `[batch, channels, height, width]`; of one axis when the height is 1.
    Plane(Tensor<4>),
    /// `[batch, channels, depth, height, width]`.
    Volume(Tensor<5>),
}

/// How a convolution walks over its input. A convolution over one axis states the second alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvGeometry {
    /// Step, one an axis.
    pub stride: Vec<usize>,
    /// Zeros before and after, one pair an axis.
    pub padding: Vec<[usize; 2]>,
    /// Distance of kernel elements, one an axis.
    pub dilation: Vec<usize>,
    /// Groups of channels that are convolved apart.
    pub groups: usize,
}

/// The input of a convolution layer, in f32, and the layer's geometry.
#[derive(Clone, Debug)]
pub struct ConvInput {
    feature: Feature,
    geometry: ConvGeometry,
}

impl ConvInput {
    /// `feature` is about to go through a convolution of `geometry`.
    #[must_use]
    pub fn new(feature: Feature, geometry: ConvGeometry) -> Self {
        Self { feature, geometry }
    }

    /// The input.
    #[must_use]
    pub fn feature(&self) -> &Feature {
        &self.feature
    }

    /// The layer's geometry.
    #[must_use]
    pub fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }

    /// Another input of the same layer.
    #[must_use]
    pub fn with_feature(&self, feature: Feature) -> Self {
        Self::new(feature, self.geometry.clone())
    }

    /// Convolves with `weight` `[channels, d_input · kernel…]` as the layer would, in `groups`; `kernel` has one
    /// size an axis of the layer.
    #[must_use]
    pub fn convolve(&self, weight: Tensor<2>, kernel: &[usize], groups: usize) -> Feature {
        let [d_output, fan_in] = weight.dims();
        let kernel = lifted(kernel, self.feature.num_axes(), 1);
        let d_input = fan_in / kernel.iter().product::<usize>().max(1);
        let geometry = &self.geometry;
        match &self.feature {
            Feature::Plane(input) => {
                let weight = weight.reshape([d_output, d_input, kernel[0], kernel[1]]);
                let (input, padding) = padded(input.clone(), &lifted(&geometry.padding, 2, [0, 0]));
                let options = ConvOptions::new(
                    array(&lifted(&geometry.stride, 2, 1)),
                    padding,
                    array(&lifted(&geometry.dilation, 2, 1)),
                    groups,
                );
                Feature::Plane(conv2d(input, weight, None, options))
            }
            Feature::Volume(input) => {
                let weight = weight.reshape([d_output, d_input, kernel[0], kernel[1], kernel[2]]);
                let (input, padding) = padded(input.clone(), &geometry.padding);
                let (stride, dilation) = (array(&geometry.stride), array(&geometry.dilation));
                let options = ConvOptions::new(stride, padding, dilation, groups);
                Feature::Volume(conv3d(input, weight, None, options))
            }
        }
    }
}

impl Feature {
    /// Axes that a kernel walks over: 2 or 3.
    #[must_use]
    pub fn num_axes(&self) -> usize {
        match self {
            Self::Plane(_) => 2,
            Self::Volume(_) => 3,
        }
    }

    /// Sizes: batch, channels, axes.
    #[must_use]
    pub fn dims(&self) -> Vec<usize> {
        match self {
            Self::Plane(feature) => feature.dims().to_vec(),
            Self::Volume(feature) => feature.dims().to_vec(),
        }
    }

    /// Multiplies every value by `factor`.
    #[must_use]
    pub fn scaled(self, factor: f32) -> Self {
        match self {
            Self::Plane(feature) => Self::Plane(feature.mul_scalar(factor)),
            Self::Volume(feature) => Self::Volume(feature.mul_scalar(factor)),
        }
    }

    /// The channels `range` alone.
    #[must_use]
    pub fn channels(self, range: Range<usize>) -> Self {
        match self {
            Self::Plane(feature) => Self::Plane(feature.slice_dim(1, range)),
            Self::Volume(feature) => Self::Volume(feature.slice_dim(1, range)),
        }
    }

    /// A 1×1 convolution: `weight` `[d_output, channels]` times the channels of every position.
    #[must_use]
    pub fn pointwise(self, weight: Tensor<2>) -> Self {
        let [d_output, channels] = weight.dims();
        let dims = self.dims();
        let positions = dims[2..].iter().product();
        let columns = self.reshaped([dims[0], channels, positions]);
        self.shaped(
            &[dims[0], d_output],
            weight.unsqueeze::<3>().matmul(columns),
        )
    }

    /// Splits the channels into `parts` inputs of their own:
    /// `[batch, parts · c, …] -> [batch · parts, c, …]`.
    #[must_use]
    pub fn split_channels(self, parts: usize) -> Self {
        let dims = self.dims();
        let channels = dims[1] / parts;
        let positions = dims[2..].iter().product();
        let split = self.reshaped([dims[0] * parts, channels, positions]);
        self.shaped(&[dims[0] * parts, channels], split)
    }

    /// Mixes the inputs of [`split_channels`](Self::split_channels) with `weight` `[mixed, parts]`:
    /// `[batch · parts, c, …] -> [batch, mixed · c, …]`.
    #[must_use]
    pub fn mixed(self, weight: Tensor<2>) -> Self {
        let [mixed, parts] = weight.dims();
        let dims = self.dims();
        let (batch, channels) = (dims[0] / parts, dims[1]);
        let positions: usize = dims[2..].iter().product();
        let columns = self.reshaped([batch, parts, channels * positions]);
        let mixture = weight.unsqueeze::<3>().matmul(columns);
        let mixture = mixture.reshape([batch, mixed * channels, positions]);
        self.shaped(&[batch, mixed * channels], mixture)
    }

    fn reshaped(&self, dims: [usize; 3]) -> Tensor<3> {
        match self {
            Self::Plane(feature) => feature.clone().reshape(dims),
            Self::Volume(feature) => feature.clone().reshape(dims),
        }
    }

    /// `values` with these batch and channel sizes and the axes of `self`.
    fn shaped(&self, start: &[usize; 2], values: Tensor<3>) -> Self {
        let dims = self.dims();
        match self {
            Self::Plane(_) => Self::Plane(values.reshape([start[0], start[1], dims[2], dims[3]])),
            Self::Volume(_) => {
                Self::Volume(values.reshape([start[0], start[1], dims[2], dims[3], dims[4]]))
            }
        }
    }
}

/// `values` with `unit` in front for the axes they do not state.
fn lifted<T: Copy>(values: &[T], num_axes: usize, unit: T) -> Vec<T> {
    let missing = num_axes.saturating_sub(values.len());
    std::iter::repeat_n(unit, missing)
        .chain(values.iter().copied())
        .collect()
}

fn array<const N: usize>(values: &[usize]) -> [usize; N] {
    std::array::from_fn(|axis| values[axis])
}

/// The input and the padding left to the convolution: uneven padding is laid around the input first.
fn padded<const D: usize, const N: usize>(
    input: Tensor<D>,
    padding: &[[usize; 2]],
) -> (Tensor<D>, [usize; N]) {
    if padding.iter().all(|[before, after]| before == after) {
        return (input, std::array::from_fn(|axis| padding[axis][0]));
    }
    let dims = input.dims();
    let mut shape = dims;
    let mut place = dims.map(|size| 0..size);
    for (axis, [before, after]) in padding.iter().enumerate() {
        let axis = D - padding.len() + axis;
        shape[axis] += before + after;
        place[axis] = *before..before + dims[axis];
    }
    let zeros = Tensor::zeros(shape, (&input.device(), input.dtype()));
    (zeros.slice_assign(place, input), [0; N])
}
