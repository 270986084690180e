//! What several test modules build: tensors, groups and patches from plain numbers.

use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor, TensorData};
use overglaze_patches::{BaseLayer, LayerShape, LowRank, Patch, PatchError, TensorGroup, registry};

pub(crate) fn device() -> Device {
    Device::flex()
}

/// Numbers between -1 and 1 that no two tensors share.
pub(crate) fn wave(shape: &[usize], seed: usize) -> TensorData {
    let numel = shape.iter().product::<usize>();
    let values = (0..numel)
        .map(|i| ((i * 7 + seed * 13 + 1) as f32 * 0.37).sin())
        .collect();
    TensorData::new::<f32, _>(values, shape)
}

pub(crate) fn scalar(value: f32) -> TensorData {
    TensorData::new(vec![value], [0_usize; 0])
}

pub(crate) fn cast(data: TensorData, dtype: DType) -> TensorData {
    data.convert_dtype(dtype)
}

pub(crate) fn group(tensors: &[(&str, TensorData)]) -> TensorGroup {
    let tensors = tensors
        .iter()
        .map(|(key, data)| (String::from(*key), data.clone()));
    TensorGroup::new("layer", tensors.collect())
}

pub(crate) fn load(tensors: &[(&str, TensorData)]) -> Result<Arc<dyn Patch>, PatchError> {
    registry::load(group(tensors), &device())
}

/// A low-rank patch `[d_output, fan_in]` without alpha, of waves.
pub(crate) fn low_rank(shape: [usize; 2], rank: usize, seed: usize) -> Arc<dyn Patch> {
    load(&[
        ("lora_up.weight", wave(&[shape[0], rank], seed)),
        ("lora_down.weight", wave(&[rank, shape[1]], seed + 1)),
    ])
    .expect("the factors fit")
}

/// ΔW on a linear layer of which only the shape is known.
pub(crate) fn delta(patch: &dyn Patch, [d_output, d_input]: [usize; 2]) -> Tensor<2> {
    delta_on(patch, &LayerShape::linear(d_output, d_input))
}

/// ΔW on a layer of which only the shape is known.
pub(crate) fn delta_on(patch: &dyn Patch, layer: &LayerShape) -> Tensor<2> {
    patch.check(layer).expect("the patch fits");
    patch
        .delta_weight(&BaseLayer::of_shape(layer))
        .expect("only the shape is needed")
        .expect("it changes the weight")
}

/// Δb on a layer without a bias of its own.
pub(crate) fn delta_bias(patch: &dyn Patch, layer: &LayerShape) -> Option<Tensor<1>> {
    let delta = patch.delta_bias(&BaseLayer::of_shape(layer));
    let delta = delta.expect("only the shape is needed");
    assert_eq!(delta.is_some(), patch.changes_bias());
    delta
}

/// `input · ΔWᵀ` without ΔW: by thin factors, else by the patch's own sidecar.
pub(crate) fn sidecar(patch: &dyn Patch, input: Tensor<2>) -> Option<Tensor<2>> {
    match patch.low_rank() {
        Some(LowRank { up, down }) => {
            assert_eq!([up.dtype(), down.dtype()], [DType::F32; 2]);
            Some(input.matmul(down.transpose()).matmul(up.transpose()))
        }
        None => patch.sidecar_linear(input),
    }
}

pub(crate) fn matrix(data: TensorData) -> Tensor<2> {
    Tensor::from_data(data, (&device(), DType::F32))
}

/// Compares and makes sure that there is something to compare.
pub(crate) fn assert_close<const D: usize>(found: Tensor<D>, expected: Tensor<D>, tolerance: f32) {
    assert_eq!(found.dims(), expected.dims());
    let found: Vec<f32> = found.into_data().iter().collect();
    let expected: Vec<f32> = expected.into_data().iter().collect();
    assert!(
        expected.iter().any(|value| *value != 0.0),
        "the expected values are all zero"
    );
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let difference = (found - expected).abs();
        assert!(
            difference <= tolerance * (1.0 + expected.abs()),
            "element {index}: {found}, expected {expected}"
        );
    }
}

/// What a layer of this shape says to the patch.
pub(crate) fn refusal(patch: &dyn Patch, layer: &LayerShape) -> String {
    message(patch.check(layer))
}

pub(crate) fn message<T>(result: Result<T, PatchError>) -> String {
    result.err().expect("an error").to_string()
}
