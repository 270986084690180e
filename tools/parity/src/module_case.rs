//! The layer a case's `module` describes, whatever its kind: over the case's bytes or over a Burn layer.
//!
//! A geometry that is not stated is stride, dilation and groups 1, padding 0 and ε 1e-5.

use std::sync::Arc;

use burn::{
    module::Param,
    nn::{
        Embedding, EmbeddingConfig, GroupNorm, GroupNormConfig, LayerNormConfig, Linear,
        LinearConfig, PaddingConfig1d, PaddingConfig2d, PaddingConfig3d, RmsNormConfig,
        conv::{Conv1dConfig, Conv2dConfig, Conv3dConfig},
    },
    tensor::{Device, Tensor},
};
use overglaze_core::{LayerLoader, LoaderConfig, NormRounding, PatchedLayerNorm, PatchedRmsNorm};
use overglaze_stream::WeightSource;
use serde_json::Value;

use crate::{AnyLayer, Case, any_layer::in_words};

/// A module of a case: what it is and where its parameters are.
#[derive(Clone, Debug)]
pub struct ModuleCase<'a> {
    case: &'a Case,
    /// The JSON that describes it.
    module: Value,
    /// What stands before `.weight` in the names of its tensors.
    path: String,
    /// Where the layer's bytes are.
    source: Arc<dyn WeightSource>,
}

impl<'a> ModuleCase<'a> {
    /// The case's one module, with its parameters under `param.`.
    #[must_use]
    pub fn of(case: &'a Case) -> Self {
        Self::new(case, case.json("module"), PARAMS)
    }

    /// A module described by `module`, with its parameters `<path>.weight` and so on.
    #[must_use]
    pub fn new(case: &'a Case, module: Value, path: &str) -> Self {
        Self {
            case,
            module,
            path: path.into(),
            source: Arc::clone(case.source()),
        }
    }

    /// The same with its parameters in `source`.
    #[must_use]
    pub fn over(mut self, source: Arc<dyn WeightSource>) -> Self {
        self.source = source;
        self
    }

    /// Its `kind`.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.module["kind"].as_str().unwrap_or("unnamed")
    }

    /// Whether a linear layer's weight is stored `[d_input, d_output]`.
    #[must_use]
    pub fn is_transposed(&self) -> bool {
        self.module["transposed"].as_bool().unwrap_or(false)
    }

    /// Whether [`AnyLayer`] has such a layer.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        KINDS.contains(&self.kind())
    }

    /// The layer over the case's bytes, as `config` has them: in place or streamed.
    ///
    /// # Errors
    /// When the module or its tensors are not what the kind needs.
    pub fn load(&self, config: LoaderConfig) -> Result<AnyLayer, String> {
        let device = config.device.clone();
        let mut loader = LayerLoader::new(Arc::clone(&self.source), config);
        let path = &*self.path;
        let built = match self.kind() {
            "linear" => loader.linear(path).map(AnyLayer::Linear),
            "conv1d" => loader.conv1d(path, &self.conv1d()?).map(AnyLayer::Conv1d),
            "conv2d" => loader.conv2d(path, &self.conv2d()?).map(AnyLayer::Conv2d),
            "conv3d" => loader.conv3d(path, &self.conv3d()?).map(AnyLayer::Conv3d),
            "embedding" => loader.embedding(path).map(AnyLayer::Embedding),
            "layer_norm" if !self.has("weight") => return self.plain_layer_norm(&device),
            "layer_norm" => loader
                .layer_norm(path, self.epsilon())
                .map(AnyLayer::LayerNorm),
            "group_norm" => loader
                .group_norm(path, self.number("num_groups")?, self.epsilon())
                .map(AnyLayer::GroupNorm),
            "flux_rms_norm" => loader
                .rms_norm(&self.name("scale"), self.epsilon())
                .map(AnyLayer::RmsNorm),
            "diffusers_rms_norm" => loader
                .diffusers_rms_norm(&self.name("weight"), self.epsilon())
                .map(AnyLayer::RmsNorm),
            kind => return Err(format!("module `{kind}`")),
        };
        let layer = built.map_err(|error| in_words(&error))?;
        loader.finish().map_err(|error| in_words(&error))?;
        Ok(layer)
    }

    /// The layer over a Burn layer with the case's parameters on `device`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn over_burn(&self, device: &Device) -> Result<AnyLayer, String> {
        Ok(match self.kind() {
            "linear" => AnyLayer::Linear(self.burn_linear(device)?.into()),
            "conv1d" => {
                let mut conv = self.conv1d()?.with_bias(false).init(device);
                (conv.weight, conv.bias) = (self.param("weight", device)?, self.bias(device)?);
                AnyLayer::Conv1d(conv.into())
            }
            "conv2d" => {
                let mut conv = self.conv2d()?.with_bias(false).init(device);
                (conv.weight, conv.bias) = (self.param("weight", device)?, self.bias(device)?);
                AnyLayer::Conv2d(conv.into())
            }
            "conv3d" => {
                let mut conv = self.conv3d()?.with_bias(false).init(device);
                (conv.weight, conv.bias) = (self.param("weight", device)?, self.bias(device)?);
                AnyLayer::Conv3d(conv.into())
            }
            "embedding" => AnyLayer::Embedding(self.burn_embedding(device)?.into()),
            "layer_norm" if !self.has("weight") => self.plain_layer_norm(device)?,
            "layer_norm" => AnyLayer::LayerNorm(self.burn_layer_norm(device)?),
            "group_norm" => AnyLayer::GroupNorm(self.burn_group_norm(device)?.into()),
            "flux_rms_norm" => AnyLayer::RmsNorm(self.burn_rms_norm("scale", device)?),
            "diffusers_rms_norm" => {
                let norm = self.burn_rms_norm("weight", device)?;
                AnyLayer::RmsNorm(norm.with_rounding(NormRounding::Scale))
            }
            kind => return Err(format!("module `{kind}`")),
        })
    }

    fn burn_linear(&self, device: &Device) -> Result<Linear, String> {
        let mut weight = self.tensor::<2>("weight", device)?;
        if !self.is_transposed() {
            weight = weight.transpose();
        }
        let [d_input, d_output] = weight.dims();
        let config = LinearConfig::new(d_input, d_output).with_bias(false);
        let mut linear = config.init(device);
        linear.weight = Param::from_tensor(weight);
        linear.bias = self.bias(device)?;
        Ok(linear)
    }

    fn burn_embedding(&self, device: &Device) -> Result<Embedding, String> {
        let weight = self.tensor::<2>("weight", device)?;
        let [num_embeddings, d_model] = weight.dims();
        let mut embedding = EmbeddingConfig::new(num_embeddings, d_model).init(device);
        embedding.weight = Param::from_tensor(weight);
        Ok(embedding)
    }

    fn burn_layer_norm(&self, device: &Device) -> Result<PatchedLayerNorm, String> {
        let gamma = self.tensor::<1>("weight", device)?;
        let mut norm = LayerNormConfig::new(gamma.dims()[0]).init(device);
        norm.gamma = Param::from_tensor(gamma);
        norm.beta = self.bias(device)?;
        Ok(PatchedLayerNorm::from_burn(norm, self.epsilon()))
    }

    fn burn_group_norm(&self, device: &Device) -> Result<GroupNorm, String> {
        let channels = self.number("num_channels")?;
        let config =
            GroupNormConfig::new(self.number("num_groups")?, channels).with_epsilon(self.epsilon());
        let mut norm = config.init(device);
        norm.gamma = Some(self.param("weight", device)?);
        norm.beta = self.bias(device)?;
        Ok(norm)
    }

    fn burn_rms_norm(&self, scale: &str, device: &Device) -> Result<PatchedRmsNorm, String> {
        let gamma = self.tensor::<1>(scale, device)?;
        let config = RmsNormConfig::new(gamma.dims()[0]).with_epsilon(self.epsilon());
        let mut norm = config.init(device);
        norm.gamma = Param::from_tensor(gamma);
        Ok(norm.into())
    }

    fn plain_layer_norm(&self, device: &Device) -> Result<AnyLayer, String> {
        let width = self.module["normalized_shape"][0].as_u64();
        let width = width.and_then(|width| usize::try_from(width).ok());
        let width = width.ok_or("no `normalized_shape`")?;
        let epsilon = self.epsilon();
        let norm = PatchedLayerNorm::without_affine(width, epsilon, device, Arc::default());
        Ok(AnyLayer::LayerNorm(norm))
    }

    fn conv1d(&self) -> Result<Conv1dConfig, String> {
        let ([d_input, d_output], [kernel]) = (self.channels()?, self.axes("kernel_size", 1)?);
        let [padding] = self.axes("padding", 0)?;
        let config = Conv1dConfig::new(d_input, d_output, kernel)
            .with_stride(self.axes::<1>("stride", 1)?[0])
            .with_dilation(self.axes::<1>("dilation", 1)?[0])
            .with_padding(PaddingConfig1d::Explicit(padding, padding))
            .with_groups(self.groups())
            .with_bias(self.has("bias"));
        Ok(config)
    }

    fn conv2d(&self) -> Result<Conv2dConfig, String> {
        let [height, width] = self.axes("padding", 0)?;
        let config = Conv2dConfig::new(self.channels()?, self.axes("kernel_size", 1)?)
            .with_stride(self.axes("stride", 1)?)
            .with_dilation(self.axes("dilation", 1)?)
            .with_padding(PaddingConfig2d::Explicit(height, width, height, width))
            .with_groups(self.groups())
            .with_bias(self.has("bias"));
        Ok(config)
    }

    fn conv3d(&self) -> Result<Conv3dConfig, String> {
        let [depth, height, width] = self.axes("padding", 0)?;
        let config = Conv3dConfig::new(self.channels()?, self.axes("kernel_size", 1)?)
            .with_stride(self.axes("stride", 1)?)
            .with_dilation(self.axes("dilation", 1)?)
            .with_padding(PaddingConfig3d::Explicit(depth, height, width))
            .with_groups(self.groups())
            .with_bias(self.has("bias"));
        Ok(config)
    }

    /// As stated, else as the weight's shape has them.
    fn channels(&self) -> Result<[usize; 2], String> {
        let stated = [self.number("in_channels"), self.number("out_channels")];
        if let [Ok(d_input), Ok(d_output)] = stated {
            // The tensor of a packed weight need not have the weight's shape.
            return Ok([d_input, d_output]);
        }
        let weight = self.case.data(&self.name("weight"))?.shape().to_vec();
        let stored = [1, 0].map(|axis| weight.get(axis).copied().unwrap_or_default());
        let [d_input, d_output] = stated;
        Ok([
            d_input.unwrap_or(stored[0] * self.groups()),
            d_output.unwrap_or(stored[1]),
        ])
    }

    fn groups(&self) -> usize {
        self.number("groups").unwrap_or(1)
    }

    fn epsilon(&self) -> f64 {
        self.module["eps"].as_f64().unwrap_or(1e-5)
    }

    fn number(&self, key: &str) -> Result<usize, String> {
        let number = self.module[key].as_u64();
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| format!("its module has no number `{key}`"))
    }

    /// One number for every axis, or one each.
    fn axes<const N: usize>(&self, key: &str, absent: usize) -> Result<[usize; N], String> {
        let whole = |value: &Value| usize::try_from(value.as_u64()?).ok();
        let wrong = || format!("its module's `{key}` is no number and no list of {N}");
        match &self.module[key] {
            Value::Null => Ok([absent; N]),
            Value::Array(values) => {
                let values: Option<Vec<_>> = values.iter().map(whole).collect();
                values
                    .and_then(|values| values.try_into().ok())
                    .ok_or_else(wrong)
            }
            value => whole(value).map(|value| [value; N]).ok_or_else(wrong),
        }
    }

    fn name(&self, parameter: &str) -> String {
        format!("{}.{parameter}", self.path)
    }

    fn has(&self, parameter: &str) -> bool {
        self.case.has(&self.name(parameter))
    }

    fn tensor<const D: usize>(
        &self,
        parameter: &str,
        device: &Device,
    ) -> Result<Tensor<D>, String> {
        self.case.tensor(&self.name(parameter), device)
    }

    fn param<const D: usize>(
        &self,
        parameter: &str,
        device: &Device,
    ) -> Result<Param<Tensor<D>>, String> {
        Ok(Param::from_tensor(self.tensor(parameter, device)?))
    }

    fn bias(&self, device: &Device) -> Result<Option<Param<Tensor<1>>>, String> {
        match self.has("bias") {
            true => Ok(Some(self.param("bias", device)?)),
            false => Ok(None),
        }
    }
}

const PARAMS: &str = "param";
const KINDS: [&str; 9] = [
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "embedding",
    "layer_norm",
    "group_norm",
    "flux_rms_norm",
    "diffusers_rms_norm",
];
