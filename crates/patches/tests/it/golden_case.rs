//! A case file of a peer's outputs, and the layers it is about, computed plainly.

use std::{collections::HashMap, fs, sync::Arc};

use burn::tensor::{DType, Int, Tensor, TensorData};
use overglaze_patches::{
    BaseLayer, ConvGeometry, ConvInput, Feature, LayerShape, LowRank, Operator, Patch, TensorGroup,
    at_strength,
    kinds::set_weight::{Parameter, SetParameter},
    registry,
};
use safetensors::SafeTensors;
use serde_json::Value;

use crate::fixtures::{assert_close, device};

/// A case file of `tests/data`.
pub(crate) struct Case {
    pub(crate) tensors: HashMap<String, TensorData>,
    pub(crate) metadata: HashMap<String, String>,
}

impl Case {
    pub(crate) fn read(name: &str) -> Self {
        let folder = env!("CARGO_MANIFEST_DIR");
        let path = format!("{folder}/tests/data/{name}.safetensors");
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a safetensors file");
        let views = SafeTensors::deserialize(&bytes)
            .expect("a safetensors file")
            .tensors();
        let tensors = views.into_iter().map(|(key, view)| {
            let dtype = match view.dtype() {
                safetensors::Dtype::F32 => DType::F32,
                safetensors::Dtype::F16 => DType::F16,
                safetensors::Dtype::BF16 => DType::BF16,
                safetensors::Dtype::I64 => DType::I64,
                safetensors::Dtype::U8 | safetensors::Dtype::BOOL => DType::U8,
                other => panic!("{key} has dtype {other:?}"),
            };
            let data = TensorData::from_bytes_vec(view.data().to_vec(), view.shape(), dtype);
            (key, data)
        });
        Self {
            tensors: tensors.collect(),
            metadata: header.metadata().clone().expect("metadata"),
        }
    }

    pub(crate) fn json(&self, key: &str) -> Value {
        self.metadata.get(key).map_or(Value::Null, |text| {
            serde_json::from_str(text).expect("JSON")
        })
    }

    pub(crate) fn listed(&self, key: &str) -> Vec<&str> {
        let list = self.metadata.get(key).map_or("", String::as_str);
        list.split_terminator(',').collect()
    }

    /// The case's own suggestion, by the dtype the peer computed in.
    pub(crate) fn tolerance(&self) -> f32 {
        self.metadata["atol"].parse().expect("a number")
    }

    pub(crate) fn tensor<const D: usize>(&self, key: &str) -> Tensor<D> {
        Tensor::from_data(self.tensors[key].clone(), (&device(), DType::F32))
    }

    /// All values of a tensor of any shape.
    pub(crate) fn flat(&self, key: &str) -> Tensor<1> {
        let values: Vec<f32> = self.tensors[key].iter().collect();
        Tensor::from_data(TensorData::from(values.as_slice()), &device())
    }

    /// The tensors under `prefix` as a group.
    pub(crate) fn group(&self, prefix: &str) -> TensorGroup {
        let tensors = self
            .tensors
            .iter()
            .filter_map(|(key, data)| Some((key.strip_prefix(prefix)?.to_owned(), data.clone())));
        TensorGroup::new(prefix, tensors.collect())
    }

    /// The patch under `prefix`, found from its tensors; `described` is what the case says of it.
    pub(crate) fn patch(&self, prefix: &str, described: &Value) -> Arc<dyn Patch> {
        let mut group = self.group(prefix);
        if !group.has("value") {
            return registry::load(group, &device()).expect("the patch is understood");
        }
        let value = group.take_data("value").expect("it is there");
        let parameter = match described["param_name"].as_str() {
            Some("bias") => Parameter::Bias,
            _ => Parameter::Weight,
        };
        Arc::new(SetParameter::new(parameter, value, &device()).expect("values"))
    }
}

/// What goes from layer to layer.
#[derive(Clone)]
pub(crate) enum Activation {
    /// `[rows, features]`.
    Rows(Tensor<2>),
    /// Channels over two axes; one axis is a plane of height 1.
    Plane(Tensor<4>),
    Tokens(Tensor<1, Int>),
}

impl Activation {
    /// The input of the case for a first layer of `shape`.
    pub(crate) fn read(case: &Case, shape: &LayerShape) -> Self {
        let data = case.tensors["in.x"].clone();
        let dims = data.shape().to_vec();
        match (shape.operator(), dims.as_slice()) {
            (Operator::Embedding, _) => Self::Tokens(case_tokens(data)),
            (Operator::Conv { .. }, [batch, channels, width]) => {
                let input = case.tensor::<3>("in.x");
                Self::Plane(input.reshape([*batch, *channels, 1, *width]))
            }
            (Operator::Conv { .. }, _) => Self::Plane(case.tensor("in.x")),
            (_, [.., features]) => Self::Rows(case.flat("in.x").reshape([-1, cast(*features)])),
            (_, []) => panic!("an input without axes"),
        }
    }

    pub(crate) fn values(self) -> Tensor<1> {
        match self {
            Self::Rows(rows) => rows.flatten(0, 1),
            Self::Plane(plane) => plane.flatten(0, 3),
            Self::Tokens(_) => panic!("tokens are no output"),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Rows(rows), Self::Rows(other)) => Self::Rows(rows + other),
            (Self::Plane(plane), Self::Plane(other)) => Self::Plane(plane + other),
            _ => panic!("outputs of two operators"),
        }
    }
}

fn case_tokens(data: TensorData) -> Tensor<1, Int> {
    Tensor::from_data(data, &device())
}

fn cast(size: usize) -> i32 {
    i32::try_from(size).expect("a small size")
}

/// A layer of a case.
pub(crate) struct Layer {
    pub(crate) module: Value,
    pub(crate) shape: LayerShape,
    /// `[d_output, fan_in]`.
    pub(crate) weight: Tensor<2>,
    pub(crate) bias: Option<Tensor<1>>,
}

impl Layer {
    /// The layer whose parameters are under `prefix`.
    pub(crate) fn read(case: &Case, module: &Value, prefix: &str) -> Self {
        let name = ["weight", "scale"]
            .map(|name| format!("{prefix}{name}"))
            .into_iter()
            .find(|name| case.tensors.contains_key(name))
            .expect("a weight");
        let dims = case.tensors[&name].shape().to_vec();
        let kind = module["kind"].as_str().expect("a kind");
        let groups = number(module, "groups", 1);
        let is_transposed = module["transposed"].as_bool() == Some(true);
        let mut shape = match (kind, dims.as_slice()) {
            ("linear", [d_input, d_output]) if is_transposed => {
                LayerShape::linear(*d_output, *d_input)
            }
            ("linear", [d_output, d_input]) => LayerShape::linear(*d_output, *d_input),
            ("embedding", [count, d_model]) => LayerShape::embedding(*count, *d_model),
            ("conv1d" | "conv2d", _) => LayerShape::conv(&dims, groups),
            (_, [d_model]) => LayerShape::norm(*d_model),
            _ => panic!("a {kind} of {dims:?}"),
        };
        let input_width = case.tensors["in.x"].shape().last().copied();
        if kind == "linear" && prefix == "param." && input_width > Some(shape.d_input()) {
            shape = shape.with_open_input();
        }
        let values = case.flat(&name);
        let [d_output, fan_in] = shape.matrix();
        let weight = if is_transposed {
            values.reshape([fan_in, d_output]).transpose()
        } else {
            values.reshape([d_output, fan_in])
        };
        let bias = format!("{prefix}bias");
        let has_bias = case.tensors.contains_key(&bias);
        Self {
            module: module.clone(),
            shape,
            weight,
            bias: has_bias.then(|| case.tensor(&bias)),
        }
    }

    pub(crate) fn base(&self) -> BaseLayer<'_> {
        BaseLayer {
            shape: &self.shape,
            weight: Some(&self.weight),
            bias: self.bias.as_ref(),
        }
    }

    /// Weight and bias with the patches merged, each at its strength; as wide as the widest patch.
    pub(crate) fn merged(
        &self,
        patches: &[(Arc<dyn Patch>, f32)],
    ) -> (Tensor<2>, Option<Tensor<1>>) {
        let (mut weight, mut bias) = (self.weight.clone(), self.bias.clone());
        for (patch, strength) in patches {
            patch.check(&self.shape).expect("the patch fits");
            let patch = at_strength(patch, *strength);
            if let Some(delta) = patch.delta_weight(&self.base()).expect("the base is there") {
                let width = delta.dims()[1].max(weight.dims()[1]);
                weight = widened(weight, width) + widened(delta, width);
            }
            let delta = patch.delta_bias(&self.base()).expect("the base is there");
            assert_eq!(delta.is_some(), patch.changes_bias());
            bias = [bias, delta]
                .into_iter()
                .flatten()
                .reduce(|sum, delta| sum + delta);
        }
        (weight, bias)
    }

    /// The layer with other parameters of its own shape.
    pub(crate) fn forward(
        &self,
        input: &Activation,
        weight: &Tensor<2>,
        bias: Option<&Tensor<1>>,
    ) -> Activation {
        match input {
            Activation::Rows(rows) if self.shape.operator() == Operator::Linear => {
                let [num_rows, _] = rows.dims();
                let rows = rows.clone().slice([0..num_rows, 0..weight.dims()[1]]);
                let output = rows.matmul(weight.clone().transpose());
                Activation::Rows(match bias {
                    Some(bias) => output + bias.clone().unsqueeze(),
                    None => output,
                })
            }
            Activation::Rows(rows) => Activation::Rows(self.norm(rows, weight, bias)),
            Activation::Plane(plane) => {
                let kernel = self.shape.kernel();
                let input = self.conv_input(plane);
                let output = plane_of(input.convolve(weight.clone(), kernel, self.shape.groups()));
                let channels = weight.dims()[0];
                Activation::Plane(match bias {
                    Some(bias) => output + bias.clone().reshape([1, channels, 1, 1]),
                    None => output,
                })
            }
            Activation::Tokens(tokens) => {
                Activation::Rows(weight.clone().select(0, tokens.clone()))
            }
        }
    }

    /// What one patch adds to the output besides its bias, without ΔW where it can; compared with ΔW's share.
    pub(crate) fn sidecar(
        &self,
        input: &Activation,
        patch: &dyn Patch,
        tolerance: f32,
    ) -> Option<Activation> {
        let base = self.base();
        let delta = patch.delta_weight(&base).expect("the base is there");
        let dense = delta.map(|delta| self.forward(input, &delta, None))?;
        let thin = match input {
            Activation::Rows(rows) => self.linear_sidecar(rows, patch).map(Activation::Rows),
            Activation::Plane(plane) => self.conv_sidecar(plane, patch).map(Activation::Plane),
            Activation::Tokens(_) => None,
        };
        if let Some(thin) = &thin {
            assert_close(thin.clone().values(), dense.clone().values(), tolerance);
        }
        Some(thin.unwrap_or(dense))
    }

    fn linear_sidecar(&self, rows: &Tensor<2>, patch: &dyn Patch) -> Option<Tensor<2>> {
        let width = patch.d_input(&self.shape);
        let rows = rows.clone().slice([0..rows.dims()[0], 0..width]);
        match patch.low_rank() {
            Some(LowRank { up, down }) => {
                Some(rows.matmul(down.transpose()).matmul(up.transpose()))
            }
            None => patch.sidecar_linear(rows),
        }
    }

    fn conv_sidecar(&self, plane: &Tensor<4>, patch: &dyn Patch) -> Option<Tensor<4>> {
        let input = self.conv_input(plane);
        let output = match patch.low_rank() {
            Some(LowRank { up, down }) => {
                input.convolve(down, self.shape.kernel(), 1).pointwise(up)
            }
            None => patch.sidecar_conv(&input)?,
        };
        Some(plane_of(output))
    }

    fn conv_input(&self, plane: &Tensor<4>) -> ConvInput {
        let num_axes = self.shape.kernel().len();
        let padding = sizes(&self.module["padding"], num_axes, 0);
        let geometry = ConvGeometry {
            stride: sizes(&self.module["stride"], num_axes, 1),
            padding: padding.into_iter().map(|size| [size, size]).collect(),
            dilation: sizes(&self.module["dilation"], num_axes, 1),
            groups: self.shape.groups(),
        };
        ConvInput::new(Feature::Plane(plane.clone()), geometry)
    }

    fn norm(&self, rows: &Tensor<2>, weight: &Tensor<2>, bias: Option<&Tensor<1>>) -> Tensor<2> {
        let [num_rows, features] = rows.dims();
        let d_model = self.shape.d_output();
        let kind = self.module["kind"].as_str().expect("a kind");
        #[expect(clippy::cast_possible_truncation, reason = "an epsilon")]
        let epsilon = self.module["eps"].as_f64().unwrap_or(1e-5) as f32;
        let groups = number(&self.module, "num_groups", 1);
        // Rows of a group norm are channels: `[batch · channels, positions]`.
        let together = match kind {
            "group_norm" => d_model / groups * features,
            _ => features,
        };
        let values = rows
            .clone()
            .reshape([num_rows * features / together, together]);
        let values = match kind {
            "flux_rms_norm" => values,
            _ => values.clone() - values.mean_dim(1),
        };
        let variance = values.clone().powf_scalar(2.0).mean_dim(1);
        let values = values / variance.add_scalar(epsilon).sqrt();
        let bias = bias
            .cloned()
            .unwrap_or_else(|| Tensor::zeros([d_model], &device()));
        if kind == "group_norm" {
            let by_channel = values.reshape([num_rows / d_model, d_model, features]);
            let scaled = by_channel * weight.clone().reshape([1, d_model, 1]);
            let shifted = scaled + bias.reshape([1, d_model, 1]);
            return shifted.reshape([num_rows, features]);
        }
        values * weight.clone().reshape([1, d_model]) + bias.unsqueeze()
    }
}

fn plane_of(feature: Feature) -> Tensor<4> {
    match feature {
        Feature::Plane(plane) => plane,
        Feature::Volume(_) => panic!("no case has three axes"),
    }
}

fn widened(matrix: Tensor<2>, width: usize) -> Tensor<2> {
    let [num_rows, columns] = matrix.dims();
    let zeros = Tensor::zeros([num_rows, width], &device());
    zeros.slice_assign([0..num_rows, 0..columns], matrix)
}

fn number(module: &Value, key: &str, default: usize) -> usize {
    let number = module[key].as_u64();
    number.map_or(default, |number| usize::try_from(number).expect("small"))
}

/// One size an axis, from a number or a list.
fn sizes(value: &Value, num_axes: usize, default: usize) -> Vec<usize> {
    let size = |value: &Value| usize::try_from(value.as_u64().expect("a size")).expect("small");
    match value {
        Value::Array(list) => list.iter().map(size).collect(),
        Value::Null => vec![default; num_axes],
        value => vec![size(value); num_axes],
    }
}
