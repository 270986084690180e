//! A packed matrix plus a product of thin factors, against sums in f64.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use overglaze_quant::{QuantizedTensor, format_by_name};

use crate::packing::{ordinary_formats, packed, values};

#[test]
fn the_sum_is_rounded_once() {
    for format in ordinary_formats() {
        // Of one tile, of several, and with an edge.
        for (shape, rank) in [([3, 32], 1), ([600, 160], 16), ([45, 3072], 5)] {
            let weight = packed(format, shape);
            for (dtype, roundoff) in [
                (FloatDType::F32, 2_f64.powi(-24)),
                (FloatDType::BF16, 2_f64.powi(-8)),
                (FloatDType::F16, 2_f64.powi(-11)),
            ] {
                check(&weight, rank, dtype, roundoff);
            }
        }
    }
}

fn check(weight: &QuantizedTensor, rank: usize, dtype: FloatDType, roundoff: f64) {
    let [d_output, d_input] = weight.shape();
    let (up, down) = (values(d_output * rank), values(rank * d_input));
    let base = decoded(weight);
    let found = plus(weight, &up, &down, dtype);
    assert_eq!(found.format().dense_dtype(), Some(DType::from(dtype)));
    assert_eq!(found.shape(), weight.shape());
    let found = decoded(&found);
    assert_ne!(found, base);
    for (index, found) in found.iter().enumerate() {
        let (row, column) = (index / d_input, index % d_input);
        let terms = (0..rank)
            .map(|k| f64::from(up[row * rank + k]) * f64::from(down[k * d_input + column]));
        let expected = f64::from(base[index]) + terms.sum::<f64>();
        // Once to the dtype (below 2^-14 an f16 has fixed steps), and once per term in f32, of sums below 32.
        let bound = roundoff * expected.abs().max(2_f64.powi(-14))
            + 32.0 * (1 + rank) as f64 * 2_f64.powi(-24);
        let difference = (f64::from(*found) - expected).abs();
        assert!(
            difference <= bound,
            "{} {dtype:?} {row} {column}: {found} {expected}",
            weight.format().name()
        );
    }
}

fn decoded(weight: &QuantizedTensor) -> Vec<f32> {
    let [d_output, d_input] = weight.shape();
    let mut values = vec![0.0; d_output * d_input];
    weight.decode_rows(0..d_output, &mut values);
    values
}

fn plus(weight: &QuantizedTensor, up: &[f32], down: &[f32], dtype: FloatDType) -> QuantizedTensor {
    let device = Device::flex();
    let [d_output, d_input] = weight.shape();
    let [up, down] = [
        (up, [d_output, up.len() / d_output]),
        (down, [down.len() / d_input, d_input]),
    ]
    .map(|(values, shape)| Tensor::from_data(TensorData::new(values.to_vec(), shape), &device));
    weight.plus_product(up, down, dtype)
}

#[test]
fn sums_beyond_a_dtype_are_infinite() {
    let weight = packed(format_by_name("f32").unwrap(), [2, 32]);
    let found = plus(&weight, &[1e5, -1e5], &[1.0; 32], FloatDType::F16);
    let found = decoded(&found);
    assert!(found[..32].iter().all(|value| *value == f32::INFINITY));
    assert!(found[32..].iter().all(|value| *value == f32::NEG_INFINITY));
}

#[test]
fn nothing_is_added_where_there_is_nothing() {
    let format = format_by_name("bf16").expect("a format");
    let device = Device::flex();
    for shape in [[3, 32], [0, 32], [3, 0]] {
        let weight = packed(format, shape);
        let [up, down] = [[shape[0], 0], [0, shape[1]]].map(|shape| Tensor::zeros(shape, &device));
        let found = weight.plus_product(up, down, FloatDType::F32);
        assert_eq!(found.shape(), shape);
        assert_eq!(decoded(&found), decoded(&weight));
    }
}
