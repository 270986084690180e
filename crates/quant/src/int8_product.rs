//! A product that rounds its input to bytes, as `LLM.int8()` does.

use burn::tensor::Tensor;

use crate::{
    QuantError, QuantizedTensor,
    host_data::{from_f32, to_f32},
    kernels::{self, WeightRows},
};

/// `input · weightᵀ` mostly in integers, on the input's device and in its type: `[rows, d_input] -> [rows, d_output]`.
///
/// This is the product of `LLM.int8()` (<https://arxiv.org/abs/2208.07339>, section 3) as bitsandbytes computes it, an
/// option beside the default, [`QuantizedTensor::linear`], which multiplies the weight's values by the input as it is:
///
/// - Columns of the input in which any `|x| >= threshold` are multiplied as they are by the weight's values.
/// - Of the others each row is rounded to signed bytes, `q = round(x · 127 / absmax)`, multiplied in integers by the
///   weight's own, and scaled by `absmax · SCB / 127²`. A row's `absmax` leaves out what reaches the threshold.
///
/// A threshold of 0 means, as there, that no column is multiplied as it is. Like there, inputs are rounded to f16
/// before they are compared and rounded to bytes: one beyond its range, 65504, is infinite, hence an outlier, and
/// spoils its row where there is no threshold. A row with a NaN gives NaN.
///
/// It is computed in host memory whatever the device, by as many threads as rayon has; sums of integers are exact, so
/// the result does not depend on them.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use overglaze_quant::{OUTLIER_THRESHOLD, QuantizedTensor, encoder_by_name, linear_int8};
///
/// let encoder = encoder_by_name("llm_int8")?;
/// let parts = encoder.encode(&[1.0, -1.0, 0.5, 0.25], [2, 2]);
/// let weight = QuantizedTensor::new(encoder.format(), [2, 2], parts)?;
/// let input = Tensor::<2>::from_data([[1.0, 8.0]], &Device::flex());
/// let output = linear_int8(&weight, input, OUTLIER_THRESHOLD)?;
/// assert_eq!(output.dims(), [1, 2]);
/// # Ok::<(), overglaze_quant::QuantError>(())
/// ```
///
/// # Errors
/// [`QuantError::NoInt8Rows`] where the weight's format has no rows of signed bytes with one scale each, and
/// [`QuantError::Threshold`] where the threshold is negative or NaN.
///
/// # Panics
/// If the input's rows are not `d_input` long.
pub fn linear_int8(
    weight: &QuantizedTensor,
    input: Tensor<2>,
    threshold: f32,
) -> Result<Tensor<2>, QuantError> {
    if threshold.is_nan() || threshold < 0.0 {
        return Err(QuantError::Threshold { threshold });
    }
    let threshold = Some(threshold).filter(|threshold| *threshold > 0.0);
    let ([d_output, d_input], [num_rows, width]) = (weight.shape(), input.dims());
    let format = weight.format();
    if format
        .int8_rows(&WeightRows::new(weight.parts(), d_input, 0..0))
        .is_none()
    {
        return Err(QuantError::NoInt8Rows {
            format: format.name(),
        });
    }
    assert_eq!(
        width, d_input,
        "the input's rows and the weight's rows differ in length"
    );
    let (device, dtype) = (input.device(), input.dtype());
    let input = input.into_data();
    let values = to_f32(&input);
    let mut output = vec![0.0; num_rows * d_output];
    if let Some(input) = weight.input_rows(&values, &mut output) {
        kernels::linear_int8(weight.matrix(), input, &mut output, threshold);
    }
    let output = from_f32(output, [num_rows, d_output], dtype);
    Ok(Tensor::from_data(output, (&device, dtype)))
}

/// The size from which bitsandbytes counts an input as an outlier unless told otherwise.
pub const OUTLIER_THRESHOLD: f32 = 6.0;
