//! A kind's ΔW against its formula, written out element by element.

use burn::tensor::{DType, FloatDType, Tensor, TensorData};
use overglaze_patches::{
    BaseAccess, BaseLayer, ConvGeometry, ConvInput, Feature, LayerShape, Patch,
};

use crate::fixtures::{assert_close, delta_on, device, load, matrix, sidecar, wave};

/// Sums of at most 36 products of three numbers below 1, in f32.
pub(crate) const TOLERANCE: f32 = 1e-5;

pub(crate) type Tensors = Vec<(&'static str, TensorData)>;

/// Reads a tensor by its indices.
pub(crate) fn reader<const D: usize>(data: &TensorData) -> impl Fn([usize; D]) -> f32 + use<D> {
    let (values, dims): (Vec<f32>, _) = (data.iter().collect(), data.shape().to_vec());
    move |indices| {
        let place = indices.iter().zip(&dims);
        values[place.fold(0, |place, (index, size)| place * size + index)]
    }
}

/// `[d_output, d_input · kernel]` from its elements; the kernel counts as one axis.
pub(crate) fn written(
    [d_output, d_input, kernel]: [usize; 3],
    element: impl Fn(usize, usize, usize) -> f32,
) -> Tensor<2> {
    let mut values = Vec::new();
    for row in 0..d_output {
        for column in 0..d_input * kernel {
            values.push(element(row, column / kernel, column % kernel));
        }
    }
    matrix(TensorData::new(values, [d_output, d_input * kernel]))
}

/// ΔW of `tensors` on `layer`, in every form the patch has it; kept in f32 and moved.
pub(crate) fn check(tensors: &Tensors, layer: &LayerShape, expected: &Tensor<2>) {
    let patch = load(tensors).expect("a patch");
    let same = patch.to_device(&device(), FloatDType::F32);
    for patch in [&patch, &same] {
        check_patch(patch.as_ref(), layer, expected);
    }
}

fn check_patch(patch: &dyn Patch, layer: &LayerShape, expected: &Tensor<2>) {
    assert_close(delta_on(patch, layer), expected.clone(), TOLERANCE);
    if layer.kernel().is_empty() {
        let input = matrix(wave(&[3, layer.fan_in()], 3));
        let product = input.clone().matmul(expected.clone().transpose());
        if let Some(output) = sidecar(patch, input) {
            assert_close(output, product, TOLERANCE);
        }
        return;
    }
    for input in conv_inputs(layer) {
        let dense = input.convolve(expected.clone(), layer.kernel(), layer.groups());
        let thin = match patch.low_rank().filter(|_| layer.groups() == 1) {
            Some(pair) => Some(
                input
                    .convolve(pair.down, layer.kernel(), 1)
                    .pointwise(pair.up),
            ),
            None => patch.sidecar_conv(&input),
        };
        if let Some(thin) = thin {
            assert_close(flat(thin), flat(dense), TOLERANCE);
        }
    }
}

/// An input for a convolution of `layer`'s axes, plain and with every option but groups.
pub(crate) fn conv_inputs(layer: &LayerShape) -> Vec<ConvInput> {
    let num_axes = layer.kernel().len();
    let channels = layer.d_input() * layer.groups();
    let geometry = |stride, padding, dilation| ConvGeometry {
        stride: vec![stride; num_axes],
        padding: vec![padding; num_axes],
        dilation: vec![dilation; num_axes],
        groups: layer.groups(),
    };
    let place = (&device(), DType::F32);
    let feature = match num_axes {
        1 => Feature::Plane(Tensor::from_data(wave(&[2, channels, 1, 9], 4), place)),
        2 => Feature::Plane(Tensor::from_data(wave(&[2, channels, 7, 8], 4), place)),
        _ => Feature::Volume(Tensor::from_data(wave(&[1, channels, 6, 5, 7], 4), place)),
    };
    [
        geometry(1, [0, 0], 1),
        geometry(2, [1, 1], 2),
        geometry(1, [0, 2], 1),
    ]
    .map(|geometry| ConvInput::new(feature.clone(), geometry))
    .into()
}

fn flat(feature: Feature) -> Tensor<1> {
    match feature {
        Feature::Plane(plane) => plane.flatten(0, 3),
        Feature::Volume(volume) => volume.flatten(0, 4),
    }
}

/// ΔW of a patch that reads the base.
pub(crate) fn on_base(
    patch: &dyn Patch,
    layer: &LayerShape,
    weight: &Tensor<2>,
    bias: Option<&Tensor<1>>,
) -> Tensor<2> {
    patch.check(layer).expect("the patch fits");
    assert_eq!(patch.base_access(), BaseAccess::Weight);
    let base = BaseLayer {
        shape: layer,
        weight: Some(weight),
        bias,
    };
    patch
        .delta_weight(&base)
        .expect("the base is there")
        .expect("a residual")
}
