//! How a convolution layer walks over its input: what Burn's three layers state, for any number of axes.
//!
//! A weight is `[d_output, d_input / groups, kernel…]`, so a layer over n axes has `D = n + 2`.

use burn::nn::{
    PaddingConfig1d, PaddingConfig2d, PaddingConfig3d,
    conv::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig},
};
use overglaze_patches::ConvGeometry;

use crate::Error;

/// Shape and geometry of a convolution layer; made from a config of Burn's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvLayout<const D: usize> {
    /// `[d_output, d_input / groups, kernel…]`.
    pub(crate) dims: [usize; D],
    pub(crate) stride: Vec<usize>,
    pub(crate) dilation: Vec<usize>,
    pub(crate) padding: Padding,
    pub(crate) groups: usize,
    pub(crate) has_bias: bool,
}

/// What Burn's three padding configs say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    Same,
    Valid,
    /// Zeros before and after, one pair an axis.
    Explicit(Vec<[usize; 2]>),
}

impl<const D: usize> ConvLayout<D> {
    /// The geometry of a pass over `input` `[batch, channels, axes…]`, and the output's shape.
    pub(crate) fn resolve(&self, input: [usize; D]) -> Result<(ConvGeometry, [usize; D]), Error> {
        self.check()?;
        let expected = self.dims[1] * self.groups;
        if input[1] != expected {
            let found = input[1];
            return Err(Error::InputChannels { found, expected });
        }
        let geometry = ConvGeometry {
            stride: self.stride.clone(),
            padding: self.padding_of(&input[2..]),
            dilation: self.dilation.clone(),
            groups: self.groups,
        };
        let mut output = input;
        output[1] = self.dims[0];
        let padded: Vec<_> = input[2..]
            .iter()
            .zip(&geometry.padding)
            .map(|(size, [before, after])| size + before + after)
            .collect();
        let reach = self.reach();
        if padded.iter().zip(&reach).any(|(size, reach)| size < reach) {
            return Err(Error::InputTooSmall {
                found: padded,
                kernel: reach,
            });
        }
        for (axis, size) in output[2..].iter_mut().enumerate() {
            *size = (padded[axis] - reach[axis]) / self.stride[axis] + 1;
        }
        Ok((geometry, output))
    }

    /// That the layer can be computed at all.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let steps = self.stride.iter().chain(&self.dilation);
        let expected = if self.dims.contains(&0) {
            "no axis of size 0"
        } else if steps.clone().any(|step| *step == 0) {
            "a stride and a dilation of 1 or more"
        } else if self.groups == 0 || !self.dims[0].is_multiple_of(self.groups) {
            "a number of groups that divides the output channels"
        } else {
            return Ok(());
        };
        Err(Error::Convolution {
            weight: self.dims.to_vec(),
            stride: self.stride.clone(),
            dilation: self.dilation.clone(),
            groups: self.groups,
            expected,
        })
    }

    /// Elements of the input that the kernel spans, one an axis.
    fn reach(&self) -> Vec<usize> {
        let kernel = self.dims[2..].iter();
        kernel
            .zip(&self.dilation)
            .map(|(size, dilation)| (size - 1) * dilation + 1)
            .collect()
    }

    fn padding_of(&self, sizes: &[usize]) -> Vec<[usize; 2]> {
        match &self.padding {
            Padding::Valid => vec![[0, 0]; sizes.len()],
            Padding::Explicit(pairs) => pairs.clone(),
            Padding::Same => (0..sizes.len())
                .map(|axis| same_padding(self.dims[axis + 2], self.stride[axis], sizes[axis]))
                .collect(),
        }
    }
}

/// Burn's rule, which leaves the dilation out: an uneven rest goes to the end.
fn same_padding(kernel: usize, stride: usize, size: usize) -> [usize; 2] {
    let steps = size.div_ceil(stride).saturating_sub(1);
    let total = (steps * stride + kernel).saturating_sub(size);
    let total = if size == 0 { 0 } else { total };
    [total / 2, total - total / 2]
}

impl From<&Conv1dConfig> for ConvLayout<3> {
    fn from(config: &Conv1dConfig) -> Self {
        let channels = [config.channels_in, config.channels_out];
        Self {
            dims: dims_of(channels, config.groups, [config.kernel_size]),
            stride: vec![config.stride],
            dilation: vec![config.dilation],
            padding: Padding::from(&config.padding),
            groups: config.groups,
            has_bias: config.bias,
        }
    }
}

impl From<&Conv1d> for ConvLayout<3> {
    fn from(conv: &Conv1d) -> Self {
        Self {
            dims: conv.weight.lazy_shape().dims(),
            stride: vec![conv.stride],
            dilation: vec![conv.dilation],
            padding: Padding::from(&conv.padding),
            groups: conv.groups,
            has_bias: conv.bias.is_some(),
        }
    }
}

/// The two layouts of a rank whose configs state one number an axis.
macro_rules! layout_of {
    ($rank:literal, $config:ty, $layer:ty) => {
        impl From<&$config> for ConvLayout<$rank> {
            fn from(config: &$config) -> Self {
                Self {
                    dims: dims_of(config.channels, config.groups, config.kernel_size),
                    stride: config.stride.to_vec(),
                    dilation: config.dilation.to_vec(),
                    padding: Padding::from(&config.padding),
                    groups: config.groups,
                    has_bias: config.bias,
                }
            }
        }

        impl From<&$layer> for ConvLayout<$rank> {
            fn from(conv: &$layer) -> Self {
                Self {
                    dims: conv.weight.lazy_shape().dims(),
                    stride: conv.stride.to_vec(),
                    dilation: conv.dilation.to_vec(),
                    padding: Padding::from(&conv.padding),
                    groups: conv.groups,
                    has_bias: conv.bias.is_some(),
                }
            }
        }
    };
}

layout_of!(4, Conv2dConfig, Conv2d);
layout_of!(5, Conv3dConfig, Conv3d);

impl From<&PaddingConfig1d> for Padding {
    fn from(padding: &PaddingConfig1d) -> Self {
        match padding {
            PaddingConfig1d::Same => Self::Same,
            PaddingConfig1d::Valid => Self::Valid,
            PaddingConfig1d::Explicit(left, right) => Self::Explicit(vec![[*left, *right]]),
        }
    }
}

impl From<&PaddingConfig2d> for Padding {
    fn from(padding: &PaddingConfig2d) -> Self {
        match padding {
            PaddingConfig2d::Same => Self::Same,
            PaddingConfig2d::Valid => Self::Valid,
            PaddingConfig2d::Explicit(top, left, bottom, right) => {
                Self::Explicit(vec![[*top, *bottom], [*left, *right]])
            }
        }
    }
}

impl From<&PaddingConfig3d> for Padding {
    fn from(padding: &PaddingConfig3d) -> Self {
        match padding {
            PaddingConfig3d::Same => Self::Same,
            PaddingConfig3d::Valid => Self::Valid,
            PaddingConfig3d::Explicit(depth, height, width) => {
                Self::Explicit([depth, height, width].map(|zeros| [*zeros; 2]).to_vec())
            }
        }
    }
}

impl From<&Padding> for PaddingConfig1d {
    fn from(padding: &Padding) -> Self {
        match padding {
            Padding::Same => Self::Same,
            Padding::Valid => Self::Valid,
            Padding::Explicit(pairs) => Self::Explicit(pairs[0][0], pairs[0][1]),
        }
    }
}

impl From<&Padding> for PaddingConfig2d {
    fn from(padding: &Padding) -> Self {
        match padding {
            Padding::Same => Self::Same,
            Padding::Valid => Self::Valid,
            Padding::Explicit(pairs) => {
                let ([top, bottom], [left, right]) = (pairs[0], pairs[1]);
                Self::Explicit(top, left, bottom, right)
            }
        }
    }
}

impl From<&Padding> for PaddingConfig3d {
    fn from(padding: &Padding) -> Self {
        match padding {
            Padding::Same => Self::Same,
            Padding::Valid => Self::Valid,
            Padding::Explicit(pairs) => Self::Explicit(pairs[0][0], pairs[1][0], pairs[2][0]),
        }
    }
}

/// `[d_output, d_input / groups, kernel…]`; no groups give no input channels, which is refused where it runs.
fn dims_of<const N: usize, const D: usize>(
    [d_input, d_output]: [usize; 2],
    groups: usize,
    kernel: [usize; N],
) -> [usize; D] {
    let start = [d_output, d_input.checked_div(groups).unwrap_or(0)];
    std::array::from_fn(|axis| match axis {
        0 | 1 => start[axis],
        _ => kernel[axis - 2],
    })
}
