//! The layers of the matrix: every operator, small, with rows of whole blocks of 32 for packed formats.

use burn::{
    nn::{
        PaddingConfig1d, PaddingConfig2d, PaddingConfig3d,
        conv::{Conv1dConfig, Conv2dConfig, Conv3dConfig},
    },
    tensor::{DType, Int, Tensor, TensorData},
};
use overglaze_core::{
    Error, LayerLoader, PatchedConv, PatchedEmbedding, PatchedGroupNorm, PatchedLayer,
    PatchedLayerNorm, PatchedLinear, PatchedRmsNorm,
};
use overglaze_patches::{LayerShape, Operator};

use crate::numbers::{flex, plain};

/// A layer that can be run on an input of its own.
pub(crate) trait Runs: PatchedLayer {
    /// The output, flattened, for an input that is rounded to `rounding` and given in `dtype`.
    fn run(&self, rounding: DType, dtype: DType) -> Tensor<1>;

    /// How many products an output is the sum of, besides the bias.
    fn num_terms(&self) -> usize {
        self.weight_shape()[1]
    }

    /// No value that the weight multiplies is larger: inputs are sines, and normalized they stay below 2.
    fn largest_input(&self) -> f32 {
        match self.layer_shape().operator() {
            Operator::Norm => 2.0,
            _ => 1.0,
        }
    }
}

/// Builds the layer at a path.
type Load = fn(&mut LayerLoader, &str) -> Result<Box<dyn Runs>, Error>;

/// A layer of the matrix.
pub(crate) struct LayerCase {
    pub(crate) name: &'static str,
    pub(crate) shape: LayerShape,
    pub(crate) has_bias: bool,
    pub(crate) load: Load,
}

impl LayerCase {
    fn new(name: &'static str, shape: LayerShape, load: Load) -> Self {
        Self {
            name,
            shape,
            has_bias: true,
            load,
        }
    }

    fn without_bias(mut self) -> Self {
        self.has_bias = false;
        self
    }
}

/// The layer `name`.
pub(crate) fn layer(name: &str) -> LayerCase {
    let mut layers = layers().into_iter();
    let found = layers.find(|layer| layer.name == name);
    found.expect("the tests name layers of the table")
}

/// Every layer.
pub(crate) fn layers() -> Vec<LayerCase> {
    [linear_layers(), convolutions(), others()]
        .into_iter()
        .flatten()
        .collect()
}

fn linear_layers() -> Vec<LayerCase> {
    let linear = LayerShape::linear;
    vec![
        LayerCase::new("linear", linear(32, 64), |loader, path| {
            Ok(Box::new(loader.linear(path)?))
        }),
        LayerCase::new("linear without bias", linear(64, 32), |loader, path| {
            Ok(Box::new(loader.linear(path)?))
        })
        .without_bias(),
        LayerCase::new(
            "open linear",
            linear(32, 64).with_open_input(),
            |loader, path| Ok(Box::new(loader.linear(path)?.with_open_input())),
        ),
    ]
}

fn convolutions() -> Vec<LayerCase> {
    let (conv, grouped) = (
        |dims: &[usize]| LayerShape::conv(dims, 1),
        |dims: &[usize]| LayerShape::conv(dims, 2),
    );
    vec![
        LayerCase::new("conv1d", conv(&[32, 16, 4]), |loader, path| {
            let config = Conv1dConfig::new(16, 32, 4)
                .with_stride(2)
                .with_padding(PaddingConfig1d::Explicit(2, 2));
            Ok(Box::new(loader.conv1d(path, &config)?))
        }),
        LayerCase::new("strided conv2d", conv(&[16, 32, 3, 3]), |loader, path| {
            let config = Conv2dConfig::new([32, 16], [3, 3])
                .with_stride([2, 2])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
            Ok(Box::new(loader.conv2d(path, &config)?))
        }),
        LayerCase::new(
            "dilated conv2d without bias",
            conv(&[32, 16, 2, 2]),
            |loader, path| {
                let config = Conv2dConfig::new([16, 32], [2, 2])
                    .with_dilation([2, 1])
                    .with_bias(false);
                Ok(Box::new(loader.conv2d(path, &config)?))
            },
        )
        .without_bias(),
        LayerCase::new("grouped conv2d", grouped(&[32, 8, 2, 2]), |loader, path| {
            let config = Conv2dConfig::new([16, 32], [2, 2]).with_groups(2);
            Ok(Box::new(loader.conv2d(path, &config)?))
        }),
        LayerCase::new("1x1 conv2d", conv(&[16, 32, 1, 1]), |loader, path| {
            let config = Conv2dConfig::new([32, 16], [1, 1]);
            Ok(Box::new(loader.conv2d(path, &config)?))
        }),
        LayerCase::new("conv3d", conv(&[16, 8, 1, 2, 2]), |loader, path| {
            let config = Conv3dConfig::new([8, 16], [1, 2, 2])
                .with_padding(PaddingConfig3d::Explicit(0, 1, 1));
            Ok(Box::new(loader.conv3d(path, &config)?))
        }),
    ]
}

fn others() -> Vec<LayerCase> {
    vec![
        LayerCase::new(
            "embedding",
            LayerShape::embedding(48, 32),
            |loader, path| Ok(Box::new(loader.embedding(path)?)),
        )
        .without_bias(),
        LayerCase::new("layer norm", LayerShape::norm(64), |loader, path| {
            Ok(Box::new(loader.layer_norm(path, EPSILON)?))
        }),
        LayerCase::new("group norm", LayerShape::norm(32), |loader, path| {
            Ok(Box::new(loader.group_norm(path, 4, EPSILON)?))
        }),
        LayerCase::new("rms norm", LayerShape::norm(32), |loader, path| {
            let scale = format!("{path}.weight");
            Ok(Box::new(loader.rms_norm(&scale, EPSILON)?))
        })
        .without_bias(),
        LayerCase::new(
            "diffusers rms norm",
            LayerShape::norm(32),
            |loader, path| {
                let scale = format!("{path}.weight");
                Ok(Box::new(loader.diffusers_rms_norm(&scale, EPSILON)?))
            },
        )
        .without_bias(),
    ]
}

impl Runs for PatchedLinear {
    fn run(&self, rounding: DType, dtype: DType) -> Tensor<1> {
        // As wide as a patch asks for; the first columns are the same ones.
        let input = plain([3, 128], 3).slice([0..3, 0..self.d_input()]);
        flat(self.forward(input.cast(rounding).cast(dtype)))
    }
}

impl<const D: usize> Runs for PatchedConv<D> {
    fn run(&self, rounding: DType, dtype: DType) -> Tensor<1> {
        let shape = self.layer_shape();
        let mut dims = [4; D];
        dims[0] = 2;
        dims[1] = shape.d_input() * shape.groups();
        flat(self.forward(plain(dims, 3).cast(rounding).cast(dtype)))
    }
}

impl Runs for PatchedEmbedding {
    fn run(&self, _rounding: DType, _dtype: DType) -> Tensor<1> {
        // Every row once, and one of them again.
        let ids: Vec<i64> = (0..48).chain([5, 5]).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [2, 25]), &flex());
        flat(self.forward(ids))
    }

    fn num_terms(&self) -> usize {
        1
    }
}

impl Runs for PatchedLayerNorm {
    fn run(&self, rounding: DType, dtype: DType) -> Tensor<1> {
        let width = self.weight_shape()[0];
        flat(self.forward(plain([3, width], 3).cast(rounding).cast(dtype)))
    }
}

impl Runs for PatchedRmsNorm {
    fn run(&self, rounding: DType, dtype: DType) -> Tensor<1> {
        let width = self.weight_shape()[0];
        flat(self.forward(plain([3, width], 3).cast(rounding).cast(dtype)))
    }
}

impl Runs for PatchedGroupNorm {
    fn run(&self, rounding: DType, dtype: DType) -> Tensor<1> {
        let input = plain([2, self.num_channels, 3, 2], 3);
        flat(self.forward(input.cast(rounding).cast(dtype)))
    }
}

fn flat<const D: usize>(output: Tensor<D>) -> Tensor<1> {
    let num_values = output.shape().num_elements();
    output.reshape([num_values])
}

/// Path of the layer under test.
pub(crate) const TESTED: &str = "blocks.1";
const EPSILON: f64 = 1e-6;
