//! A packed matrix among Burn's tensors.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData, bf16, f16};
use overglaze_quant::{QuantizedTensor, format_by_name, kernels::is_host};

use crate::packing::{block_formats, moved, packed, values};

#[test]
fn flex_is_a_host_device() {
    assert!(is_host(&Device::flex()));
}

#[test]
fn the_output_has_the_type_of_the_input() {
    for format in block_formats() {
        let weight = packed(format, [35, 96]);
        let d_input = weight.shape()[1];
        for num_rows in [1, 7, 120] {
            let values = values(num_rows * d_input);
            check(
                &weight,
                TensorData::new(values.clone(), [num_rows, d_input]),
                |v| v,
            );
            let halves: Vec<_> = values.iter().map(|v| f16::from_f32(*v)).collect();
            check(&weight, TensorData::new(halves, [num_rows, d_input]), |v| {
                f16::from_f32(v).to_f32()
            });
            let halves: Vec<_> = values.iter().map(|v| bf16::from_f32(*v)).collect();
            check(&weight, TensorData::new(halves, [num_rows, d_input]), |v| {
                bf16::from_f32(v).to_f32()
            });
        }
    }
}

/// The sums are the ones of [`QuantizedTensor::linear_into`], rounded once: no tolerance.
fn check(weight: &QuantizedTensor, input: TensorData, round: fn(f32) -> f32) {
    let device = Device::flex();
    let dtype = input.dtype();
    let widened: Vec<f32> = input.iter().collect();
    let mut expected = vec![0.0; widened.len() / weight.shape()[1] * 35];
    weight.linear_into(&widened, &mut expected);
    let expected: Vec<_> = expected.into_iter().map(round).collect();
    let output = weight.linear(Tensor::from_data(input, (&device, dtype)));
    assert_eq!(output.dtype(), dtype);
    assert_eq!(
        output.into_data().iter::<f32>().collect::<Vec<_>>(),
        expected
    );
    assert!(expected.iter().any(|value| *value != 0.0));
}

#[test]
fn views_of_an_input_are_read_as_they_look() {
    let device = Device::flex();
    for format in block_formats() {
        let weight = packed(format, [3, 32]);
        let d_input = weight.shape()[1];
        let data = TensorData::new(values(4 * d_input), [d_input, 4]);
        let view = Tensor::<2>::from_data(data, &device)
            .transpose()
            .slice([1..3, 0..d_input]);
        let copy = Tensor::<2>::from_data(view.clone().into_data(), &device);
        weight
            .linear(view)
            .into_data()
            .assert_eq(&weight.linear(copy).into_data(), true);
    }
}

#[test]
fn dense_copies_have_the_decoded_values() {
    let device = Device::flex();
    for format in block_formats() {
        let weight = packed(format, [67, 96]);
        let mut expected = vec![0.0; 67 * weight.shape()[1]];
        weight.decode_rows(0..67, &mut expected);
        for offset in 0..3 {
            let weight = moved(&weight, offset);
            check_dense(&weight.to_dense(&device, FloatDType::F32), &expected);
            let rounded: Vec<_> = expected
                .iter()
                .map(|v| bf16::from_f32(*v).to_f32())
                .collect();
            check_dense(&weight.to_dense(&device, FloatDType::BF16), &rounded);
            let rounded: Vec<_> = expected
                .iter()
                .map(|v| f16::from_f32(*v).to_f32())
                .collect();
            check_dense(&weight.to_dense(&device, FloatDType::F16), &rounded);
        }
    }
}

fn check_dense(dense: &Tensor<2>, expected: &[f32]) {
    assert_eq!(dense.dims(), [67, expected.len() / 67]);
    assert_eq!(dense.to_data().iter::<f32>().collect::<Vec<_>>(), expected);
}

#[test]
fn empty_matrices_and_inputs_are_fine() {
    let device = Device::flex();
    for format in block_formats() {
        let d_input = 32_usize.next_multiple_of(format.block().unwrap().len);
        let input = Tensor::<2>::zeros([2, d_input], (&device, DType::F32));
        assert_eq!(packed(format, [0, d_input]).linear(input).dims(), [2, 0]);
        let input = Tensor::<2>::zeros([0, d_input], (&device, DType::F32));
        assert_eq!(packed(format, [3, d_input]).linear(input).dims(), [0, 3]);
        let mut output = [1.0; 3];
        packed(format, [3, 0]).linear_into(&[], &mut output);
        assert_eq!(output, [0.0; 3]);
    }
}

#[test]
fn debug_output_has_no_values() {
    for format in block_formats() {
        let weight = packed(format, [2, 32]);
        let expected = format!(
            "QuantizedTensor {{ format: {:?}, shape: {:?}, parts: [values: [], {} bytes] }}",
            format.name(),
            weight.shape(),
            weight.num_bytes(),
        );
        assert_eq!(format!("{weight:?}"), expected);
    }
}

#[test]
#[should_panic(expected = "the input's rows and the weight's rows differ in length")]
fn inputs_of_another_width_are_a_mistake() {
    let weight = packed(format_by_name("f32").unwrap(), [2, 32]);
    let _ = weight.linear(Tensor::zeros([1, 31], &Device::flex()));
}
