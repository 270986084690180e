//! A layer with made-up values, and what a patch answers about it.

use std::{ops::Range, sync::Arc};

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::{Broken, Promise, broken};
use crate::{BaseLayer, ConvGeometry, ConvInput, Feature, LayerShape, Patch};

/// A layer with values.
pub(super) struct Sample {
    shape: LayerShape,
    device: Device,
    /// `[d_output, fan_in]`.
    weight: Tensor<2>,
    /// `[d_output]`.
    bias: Tensor<1>,
    /// Whether patches see the bias: many layers have none.
    has_bias: bool,
}

/// The residuals of a patch on a sample.
#[derive(Clone)]
pub(super) struct Answer {
    /// ΔW `[d_output, fan_in]`.
    pub(super) weight: Option<Tensor<2>>,
    /// Δb `[d_output]`.
    pub(super) bias: Option<Tensor<1>>,
    /// The largest value of the layer, which rounding is measured by.
    scale: f32,
}

impl Sample {
    pub(super) fn new(shape: &LayerShape, seed: usize, device: &Device) -> Self {
        let [d_output, fan_in] = shape.matrix();
        let bias = wave(&[d_output], seed + 7);
        Self {
            shape: shape.clone(),
            device: device.clone(),
            weight: Tensor::from_data(wave(&[d_output, fan_in], seed), (device, DType::F32)),
            bias: Tensor::from_data(bias, (device, DType::F32)),
            has_bias: true,
        }
    }

    /// The same layer without a bias.
    pub(super) fn without_bias(&self) -> Self {
        Self {
            shape: self.shape.clone(),
            device: self.device.clone(),
            weight: self.weight.clone(),
            bias: self.bias.zeros_like(),
            has_bias: false,
        }
    }

    pub(super) fn shape(&self) -> &LayerShape {
        &self.shape
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The layer, and nothing of its values.
    pub(super) fn blind(&self) -> BaseLayer<'_> {
        BaseLayer::of_shape(&self.shape)
    }

    /// The rows `rows` of the layer.
    pub(super) fn cut(&self, rows: Range<usize>) -> Self {
        Self {
            shape: self.shape.with_rows(rows.len()),
            device: self.device.clone(),
            weight: self.weight.clone().slice_dim(0, rows.clone()),
            bias: self.bias.clone().slice([rows]),
            has_bias: self.has_bias,
        }
    }

    /// What `patch` answers, if it has the form that is promised.
    pub(super) fn answer(&self, patch: &Arc<dyn Patch>) -> Result<Answer, Broken> {
        let base = BaseLayer {
            shape: &self.shape,
            weight: Some(&self.weight),
            bias: self.has_bias.then_some(&self.bias),
        };
        let failed = |promise, error| (promise, format!("it fails with the values there: {error}"));
        let weight = patch.delta_weight(&base);
        let weight = weight.map_err(|error| failed(Promise::DeltaWeight, error))?;
        let bias = patch.delta_bias(&base);
        let bias = bias.map_err(|error| failed(Promise::DeltaBias, error))?;
        if let Some(weight) = &weight {
            self.check_weight(patch, weight)?;
        }
        self.check_bias(patch, bias.as_ref())?;
        let scale = largest(&self.weight).max(largest(&self.bias));
        Ok(Answer {
            weight,
            bias,
            scale,
        })
    }

    /// Weight and bias with the residuals.
    pub(super) fn patched(&self, answer: &Answer) -> (Tensor<2>, Tensor<1>) {
        let weight = match &answer.weight {
            Some(delta) if delta.dims() == self.weight.dims() => {
                self.weight.clone() + delta.clone()
            }
            _ => self.weight.clone(),
        };
        let bias = match &answer.bias {
            Some(delta) => self.bias.clone() + delta.clone(),
            None => self.bias.clone(),
        };
        (weight, bias)
    }

    /// Input of a linear layer `[3, d_input]`.
    pub(super) fn rows(&self, d_input: usize) -> Tensor<2> {
        Tensor::from_data(wave(&[3, d_input], 11), (&self.device, DType::F32))
    }

    /// Input of a convolution that is a little larger than its kernel.
    pub(super) fn conv_input(&self) -> ConvInput {
        let kernel = self.shape.kernel();
        let channels = self.shape.d_input() * self.shape.groups();
        let sizes: Vec<_> = kernel.iter().map(|size| size + 2).collect();
        let feature = match sizes.as_slice() {
            [depth, height, width] => {
                let data = wave(&[2, channels, *depth, *height, *width], 11);
                Feature::Volume(Tensor::from_data(data, (&self.device, DType::F32)))
            }
            _ => {
                let width = sizes.last().copied().unwrap_or(1);
                let height = if sizes.len() < 2 { 1 } else { sizes[0] };
                let data = wave(&[2, channels, height, width], 11);
                Feature::Plane(Tensor::from_data(data, (&self.device, DType::F32)))
            }
        };
        let geometry = ConvGeometry {
            stride: vec![1; kernel.len()],
            padding: kernel.iter().map(|size| [size / 2; 2]).collect(),
            dilation: vec![1; kernel.len()],
            groups: self.shape.groups(),
        };
        ConvInput::new(feature, geometry)
    }

    fn check_weight(&self, patch: &Arc<dyn Patch>, delta: &Tensor<2>) -> Result<(), Broken> {
        let [d_output, fan_in] = self.shape.matrix();
        let (base, reads) = (self.shape.d_input(), patch.d_input(&self.shape));
        let expected = [d_output, if reads > base { reads } else { fan_in }];
        if delta.dims() != expected {
            let found = format!("ΔW is {:?}, expected {expected:?}", delta.dims());
            return broken(Promise::DeltaWeight, found);
        }
        check_float(Promise::DeltaWeight, delta)
    }

    fn check_bias(&self, patch: &Arc<dyn Patch>, delta: Option<&Tensor<1>>) -> Result<(), Broken> {
        if delta.is_some() != patch.changes_bias() {
            let found = format!(
                "`changes_bias` is {}, but there is {} Δb",
                patch.changes_bias(),
                if delta.is_some() { "a" } else { "no" }
            );
            return broken(Promise::DeltaBias, found);
        }
        let Some(delta) = delta else {
            return Ok(());
        };
        let ([found], expected) = (delta.dims(), self.shape.d_output());
        if found != expected {
            let found = format!("Δb has {found} values, expected {expected}");
            return broken(Promise::DeltaBias, found);
        }
        check_float(Promise::DeltaBias, delta)
    }
}

impl Answer {
    /// The rows `rows` of the residuals.
    pub(super) fn cut(&self, rows: Range<usize>) -> Self {
        let weight = self.weight.clone();
        Self {
            weight: weight.map(|weight| weight.slice_dim(0, rows.clone())),
            bias: self.bias.clone().map(|bias| bias.slice([rows])),
            scale: self.scale,
        }
    }

    /// Where it is unlike `expected`, by more than `tolerance` of the largest value; `None` where it is alike.
    pub(super) fn unlike(&self, expected: &Self, tolerance: f32) -> Option<String> {
        if self.weight.is_some() != expected.weight.is_some() {
            return Some("one has a ΔW and the other has none".into());
        }
        if self.bias.is_some() != expected.bias.is_some() {
            return Some("one has a Δb and the other has none".into());
        }
        let tolerance = tolerance * self.scale.max(1.0);
        let weights = self.weight.as_ref().zip(expected.weight.as_ref());
        let weights = weights.and_then(|(found, expected)| difference(found, expected, tolerance));
        let biases = self.bias.as_ref().zip(expected.bias.as_ref());
        let biases = biases.and_then(|(found, expected)| difference(found, expected, tolerance));
        let of =
            |name: &str, unlike: Option<String>| unlike.map(|unlike| format!("{name} {unlike}"));
        of("ΔW", weights).or(of("Δb", biases))
    }
}

/// Where `found` is unlike `expected`, by more than `tolerance` times 1 and the largest value.
pub(super) fn difference<const D: usize>(
    found: &Tensor<D>,
    expected: &Tensor<D>,
    tolerance: f32,
) -> Option<String> {
    if found.dims() != expected.dims() {
        let (found, expected) = (found.dims(), expected.dims());
        return Some(format!("has shape {found:?}, expected {expected:?}"));
    }
    let (found, expected) = (values(found), values(expected));
    let largest = expected
        .iter()
        .fold(1.0_f32, |largest, value| largest.max(value.abs()));
    let mut pairs = found.iter().zip(&expected).enumerate();
    // Not `>`: a NaN is unlike everything.
    let (index, (found, expected)) = pairs.find(|(_, (found, expected))| {
        let is_alike = (*found - *expected).abs() <= tolerance * largest;
        !is_alike
    })?;
    Some(format!(
        "has {found} at element {index}, expected {expected}"
    ))
}

pub(super) fn unlike_features(
    found: &Feature,
    expected: &Feature,
    tolerance: f32,
) -> Option<String> {
    match (found, expected) {
        (Feature::Plane(found), Feature::Plane(expected)) => difference(found, expected, tolerance),
        (Feature::Volume(found), Feature::Volume(expected)) => {
            difference(found, expected, tolerance)
        }
        _ => Some("has another number of axes".into()),
    }
}

/// Residuals are f32 and finite.
pub(super) fn check_float<const D: usize>(
    promise: Promise,
    tensor: &Tensor<D>,
) -> Result<(), Broken> {
    if tensor.dtype() != DType::F32 {
        let found = format!("the answer is {}, expected f32", tensor.dtype().name());
        return broken(promise, found);
    }
    match values(tensor).iter().all(|value| value.is_finite()) {
        true => Ok(()),
        false => broken(promise, "the answer has numbers that are not finite"),
    }
}

fn largest<const D: usize>(tensor: &Tensor<D>) -> f32 {
    let values = values(tensor);
    values
        .iter()
        .fold(0.0, |largest, value| largest.max(value.abs()))
}

fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().into_data().iter().collect()
}

/// Numbers between -1 and 1 that differ from seed to seed.
fn wave(shape: &[usize], seed: usize) -> TensorData {
    let values = 0..shape.iter().product::<usize>();
    let values = values.map(|index| ((index * 7 + seed * 13 + 1) as f32 * 0.37).sin());
    TensorData::new(values.collect::<Vec<f32>>(), shape)
}
