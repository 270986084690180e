//! Burn's own weight layout `[d_input, d_output]`: the only file that knows it. Everything else here
//! writes weights `[d_output, d_input]`.

use burn::{
    module::Param,
    nn::{Linear, LinearConfig},
    tensor::{DType, Device, Tensor},
};

use crate::Traffic;

/// A matrix with its two axes swapped (a view), for a rank that is only known to be 2.
pub(crate) fn swapped<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    tensor.swap_dims(D - 2, D - 1)
}

/// The parameters of a Burn layer, shared: weight `[d_input, d_output]` and bias `[d_output]`.
pub(crate) fn params_of(linear: Linear) -> (Param<Tensor<2>>, Option<Param<Tensor<1>>>) {
    (linear.weight, linear.bias)
}

/// A Burn layer over existing parameters; nothing is initialized.
pub(crate) fn linear_of(weight: Param<Tensor<2>>, bias: Option<Param<Tensor<1>>>) -> Linear {
    let [d_input, d_output] = param_dims(&weight);
    let mut linear = LinearConfig::new(d_input, d_output)
        .with_bias(false)
        .init(&weight.lazy_device());
    linear.weight = weight;
    linear.bias = bias;
    linear
}

/// Logical shape `[d_output, d_input]` of a Burn weight, without initializing it.
pub(crate) fn logical_shape(weight: &Param<Tensor<2>>) -> [usize; 2] {
    let [d_input, d_output] = param_dims(weight);
    [d_output, d_input]
}

/// A Burn weight matrix as `[d_output, d_input]` (a view).
pub(crate) fn as_rows_of(weight: Tensor<2>) -> Tensor<2> {
    weight.transpose()
}

/// Any Burn parameter seen as `[d_output, fan_in]`, a vector as `[d_output, 1]`; `transposed` tells that it is a
/// linear layer's weight `[d_input, d_output]`.
pub(crate) fn matrix_of<const D: usize>(param: Tensor<D>, transposed: bool) -> Tensor<2> {
    let dims = matrix_dims(param.dims());
    let matrix = param.reshape(dims);
    if transposed {
        as_rows_of(matrix)
    } else {
        matrix
    }
}

/// Undoes [`matrix_of`] for a parameter of `dims`.
pub(crate) fn param_of<const D: usize>(
    matrix: Tensor<2>,
    dims: [usize; D],
    transposed: bool,
) -> Tensor<D> {
    let matrix = if transposed {
        as_rows_of(matrix)
    } else {
        matrix
    };
    matrix.reshape(dims)
}

/// A convolution's or an embedding's weight, which Burn keeps with the output axis first, as
/// `[d_output, fan_in]` (a view).
pub(crate) fn flattened<const D: usize>(weight: Tensor<D>) -> Tensor<2> {
    let dims = matrix_dims(weight.dims());
    weight.reshape(dims)
}

/// `input · weight` in f32, with `weight` `[d_input, d_output]`; either may be of another dtype.
pub(crate) fn product(input: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    cast(input, DType::F32).matmul(cast(weight, DType::F32))
}

/// `tensor` in f32 on `device`; a copy that crosses devices is counted.
pub(crate) fn values<const D: usize>(
    tensor: Tensor<D>,
    device: &Device,
    traffic: &Traffic,
) -> Tensor<D> {
    cast(aligned(tensor, device, traffic), DType::F32)
}

/// `tensor` on `device`; a copy that crosses devices is counted, in the dtype it crosses in.
pub(crate) fn aligned<const D: usize>(
    tensor: Tensor<D>,
    device: &Device,
    traffic: &Traffic,
) -> Tensor<D> {
    if tensor.device() == *device {
        return tensor;
    }
    let tensor = moved(tensor, device);
    traffic.count_move(tensor.shape().num_elements() * tensor.dtype().size());
    tensor
}

/// `tensor` on `device`. A dtype the device lacks becomes f32 on the way.
fn moved<const D: usize>(tensor: Tensor<D>, device: &Device) -> Tensor<D> {
    if device.supports_dtype(tensor.dtype()) {
        return tensor.to_device(device);
    }
    tensor.cast(DType::F32).to_device(device)
}

/// `tensor` in `dtype`; nothing happens when it already is.
pub(crate) fn cast<const D: usize>(tensor: Tensor<D>, dtype: DType) -> Tensor<D> {
    if tensor.dtype() == dtype {
        return tensor;
    }
    tensor.cast(dtype)
}

fn matrix_dims<const D: usize>(dims: [usize; D]) -> [usize; 2] {
    [dims[0], dims[1..].iter().product()]
}

fn param_dims(weight: &Param<Tensor<2>>) -> [usize; 2] {
    weight.lazy_shape().dims()
}
