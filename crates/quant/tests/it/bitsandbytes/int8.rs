//! The product in integers, against bitsandbytes and against its formula in f64.

use burn::tensor::{DType, Device, Tensor, TensorData, bf16, f16};
use overglaze_quant::{
    OUTLIER_THRESHOLD, Parts, QuantizedTensor, encoder_by_name, format_by_name, linear_int8,
};

use super::cases;
use crate::{packing::values, tensor_file::MemoryFile};

#[test]
fn products_are_those_of_bitsandbytes() {
    let cases = cases().into_iter();
    let cases: Vec<_> = cases
        .filter(|(_, file)| file.texts.contains_key("threshold"))
        .collect();
    assert_eq!(cases.len(), 8);
    for (name, file) in cases {
        check_case(&name, &file);
    }
}

/// Both sides round: bitsandbytes the integer part with the bias, the weight's outlier columns and the sum to the output's
/// type, we the sum; and bitsandbytes multiplies by 6.200124e-5 where 127⁻² is 6.2000124e-5, 1.8e-5 more.
fn check_case(name: &str, file: &MemoryFile) {
    let weight = file.weight("param.weight").unwrap();
    let threshold: f32 = file.texts["threshold"].parse().unwrap();
    let (input, bias) = (file.floats("in.x"), file.floats("param.bias"));
    let expected = file.floats("out.y");
    assert!(expected.iter().any(|value| *value != 0.0));
    let dtype = input_of(file);
    let (output, roundoff) = (
        linear_int8(&weight, dtype, threshold).unwrap(),
        roundoff(file),
    );
    let found: Vec<f32> = output.into_data().iter().collect();
    assert_eq!(found.len(), expected.len());
    let parts = reference(&weight, &input, threshold);
    let (mut default, mut largest_ratio) = (vec![0.0; found.len()], 0.0_f64);
    weight.linear_into(&input, &mut default);
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let bias = bias[index % bias.len()];
        let Sums {
            integers,
            outliers,
            outliers_size,
            ..
        } = parts[index];
        let sums = integers.abs() + f64::from(bias.abs()) + (integers + outliers).abs();
        let rounded = sums + outliers_size + f64::from(expected.abs());
        let bound = roundoff * rounded + 1.9e-5 * integers.abs() + 1e-6 * outliers_size;
        let error = f64::from((found + bias - expected).abs());
        assert!(error <= bound, "{name} {index}: {error} {bound}");
        let error = f64::from((default[index] + bias - expected).abs());
        largest_ratio = largest_ratio.max(error / bound);
    }
    // The product with the input as it is would not do.
    assert!(largest_ratio > 2.0, "{name}: {largest_ratio}");
}

fn roundoff(file: &MemoryFile) -> f64 {
    match file.part("", "out.y").tag.as_str() {
        "F16" => 2_f64.powi(-11),
        "BF16" => 2_f64.powi(-8),
        _ => 2_f64.powi(-24),
    }
}

/// The input of a case in its own type.
fn input_of(file: &MemoryFile) -> Tensor<2> {
    let stored = file.part("", "in.x");
    let (values, shape) = (file.floats("in.x"), stored.shape);
    let data = match stored.tag.as_str() {
        "F16" => TensorData::new(values.iter().map(|v| f16::from_f32(*v)).collect(), shape),
        "BF16" => TensorData::new(values.iter().map(|v| bf16::from_f32(*v)).collect(), shape),
        _ => TensorData::new(values, shape),
    };
    let dtype = data.dtype();
    Tensor::from_data(data, (&Device::flex(), dtype))
}

/// An output by the formula, in f64: its two sums, and the same of their terms' sizes.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    integers: f64,
    integers_size: f64,
    outliers: f64,
    outliers_size: f64,
}

/// `[rows, d_output]`.
fn reference(weight: &QuantizedTensor, input: &[f32], threshold: f32) -> Vec<Sums> {
    let [d_output, d_input] = weight.shape();
    let mut weights = vec![0.0; d_output * d_input];
    weight.decode_rows(0..d_output, &mut weights);
    let halves: Vec<_> = input.iter().map(|v| f16::from_f32(*v).to_f32()).collect();
    let is_large = |value: &f32| threshold > 0.0 && value.abs() >= threshold;
    let has_outlier = |column| halves[column..].iter().step_by(d_input).any(is_large);
    let columns: Vec<_> = (0..d_input).map(has_outlier).collect();
    let mut output = Vec::new();
    for (input, halves) in input.chunks(d_input).zip(halves.chunks(d_input)) {
        let small = halves.iter().filter(|value| !is_large(value));
        let absmax = small.fold(0.0_f32, |max, value| max.max(value.abs()));
        for weights in weights.chunks(d_input) {
            let mut sums = Sums::default();
            for (column, weight) in weights.iter().enumerate() {
                let weight = f64::from(*weight);
                if columns[column] {
                    let product = f64::from(input[column]) * weight;
                    sums.outliers += product;
                    sums.outliers_size += product.abs();
                } else if absmax > 0.0 {
                    let code = (halves[column] * (127.0 / absmax)).round_ties_even();
                    let product = f64::from(code) * f64::from(absmax) / 127.0 * weight;
                    sums.integers += product;
                    sums.integers_size += product.abs();
                }
            }
            output.push(sums);
        }
    }
    output
}

fn weight(shape: [usize; 2]) -> QuantizedTensor {
    let encoder = encoder_by_name("llm_int8").unwrap();
    let parts = encoder.encode(&values(shape[0] * shape[1]), shape);
    QuantizedTensor::new(encoder.format(), shape, parts).unwrap()
}

fn product(weight: &QuantizedTensor, input: &[f32], threshold: f32) -> Vec<f32> {
    let d_input = weight.shape()[1];
    let data = TensorData::new(input.to_vec(), [input.len() / d_input, d_input]);
    let input = Tensor::from_data(data, &Device::flex());
    let output = linear_int8(weight, input, threshold).unwrap();
    output.into_data().iter().collect()
}

#[test]
fn products_follow_the_formula() {
    for (shape, num_rows) in [
        ([3, 32], 1),
        ([70, 33], 5),
        ([40, 300], 130),
        ([2, 70_000], 2),
    ] {
        let weight = weight(shape);
        let mut input = values(num_rows * shape[1]);
        (input[3], input[shape[1] - 1]) = (7.0, -9.0);
        for threshold in [0.0, OUTLIER_THRESHOLD, 0.99] {
            let found = product(&weight, &input, threshold);
            let expected = reference(&weight, &input, threshold);
            assert!(expected.iter().any(|sums| sums.integers != 0.0));
            for (found, sums) in found.iter().zip(expected) {
                let expected = sums.integers + sums.outliers;
                // Here one rounding of each weight, there a few of an exact sum; outliers add up one after another.
                let num_outliers = sums.outliers_size / f64::from(OUTLIER_THRESHOLD);
                let bound =
                    6e-7 * (sums.integers_size + sums.outliers_size * num_outliers.max(1.0));
                let error = (f64::from(*found) - expected).abs();
                assert!(error <= bound, "{shape:?} {threshold}: {found} {expected}");
            }
        }
    }
}

#[test]
fn a_threshold_of_zero_rounds_every_column() {
    let weight = weight([5, 40]);
    let mut input = values(3 * 40);
    input[7] = 100.0;
    let rounded = product(&weight, &input, 0.0);
    assert_eq!(rounded, product(&weight, &input, 101.0));
    assert_ne!(rounded, product(&weight, &input, 100.0));
}

#[test]
fn without_small_columns_the_product_is_the_default_one() {
    let weight = weight([5, 40]);
    let input: Vec<_> = values(3 * 40).iter().map(|value| value + 9.0).collect();
    let found = product(&weight, &input, OUTLIER_THRESHOLD);
    let mut expected = vec![0.0; found.len()];
    weight.linear_into(&input, &mut expected);
    for (found, expected) in found.iter().zip(expected) {
        // Sums of 40 products below 10, in f32 and in another order.
        assert!(
            (found - expected).abs() <= 400.0 * f32::EPSILON,
            "{found} {expected}"
        );
    }
}

#[test]
fn rows_do_not_depend_on_each_other_but_for_outlier_columns() {
    let weight = weight([70, 40]);
    let input = values(150 * 40);
    let all = product(&weight, &input, OUTLIER_THRESHOLD);
    for row in [0, 1, 63, 64, 149] {
        let alone = product(&weight, &input[row * 40..][..40], OUTLIER_THRESHOLD);
        assert_eq!(alone, all[row * 70..][..70]);
    }
}

#[test]
fn numbers_that_are_none_spoil_their_row_alone() {
    let weight = weight([5, 40]);
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e6] {
        for threshold in [0.0, OUTLIER_THRESHOLD] {
            let mut input = values(3 * 40);
            input[40 + 7] = special;
            let output = product(&weight, &input, threshold);
            // What reaches the threshold, be it infinite as an f16, is multiplied as it is.
            let is_kept = special == 1e6 && threshold > 0.0;
            let spoilt = &output[5..10];
            assert!(
                spoilt.iter().all(|value| value.is_finite() == is_kept),
                "{special} {threshold}: {spoilt:?}"
            );
            let others = output[..5].iter().chain(&output[10..]);
            assert!(others.into_iter().all(|value| value.is_finite()));
        }
    }
}

#[test]
fn rows_without_values_give_zeros() {
    let input = vec![0.0; 2 * 40];
    assert_eq!(product(&weight([5, 40]), &input, 0.0), [0.0; 10]);
    assert_eq!(
        product(&weight([5, 40]), &input, OUTLIER_THRESHOLD),
        [0.0; 10]
    );
    assert_eq!(product(&weight([5, 40]), &[], 0.0), [0.0; 0]);
    for shape in [[0, 40], [5, 0], [0, 0]] {
        let input = Tensor::<2>::ones([2, shape[1]], (&Device::flex(), DType::F32));
        let output = linear_int8(&weight(shape), input, OUTLIER_THRESHOLD).unwrap();
        assert_eq!(output.dims(), [2, shape[0]]);
        assert!(output.into_data().iter::<f32>().all(|value| value == 0.0));
    }
}

#[test]
fn other_formats_and_thresholds_are_refused() {
    let floats = Parts::values(vec![0; 4 * 64].into());
    let floats = QuantizedTensor::new(format_by_name("f32").unwrap(), [2, 32], floats).unwrap();
    let refused = |weight: &QuantizedTensor, threshold| {
        let input = Tensor::ones([1, 32], &Device::flex());
        linear_int8(weight, input, threshold)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(&floats, OUTLIER_THRESHOLD),
        "a f32 weight has no rows of signed bytes with one scale each, as a product in integers needs; multiply it by \
         the default product"
    );
    for threshold in [-1.0, f32::NAN] {
        assert_eq!(
            refused(&weight([2, 32]), threshold),
            format!(
                "an outlier threshold of {threshold} means nothing; choose a positive one, or 0 for no outliers"
            )
        );
    }
}

#[test]
#[should_panic(expected = "the input's rows and the weight's rows differ in length")]
fn inputs_of_another_width_are_a_mistake() {
    let input = Tensor::ones([1, 31], &Device::flex());
    let _ = linear_int8(&weight([2, 32]), input, OUTLIER_THRESHOLD);
}
