//! A narrow product added to a wide one in place, against the plain sum.

use burn::tensor::{Device, Tensor, TensorData};
use overglaze_quant::add_product;

/// `[rows, columns]` of numbers around 0 that repeat nowhere near a tile's size.
fn matrix(rows: usize, columns: usize, step: usize) -> Tensor<2> {
    let value = |index: usize| ((index * step) % 251) as f32 / 125.0 - 1.0;
    let values: Vec<_> = (0..rows * columns).map(value).collect();
    Tensor::from_data(TensorData::new(values, [rows, columns]), &Device::flex())
}

fn values(tensor: Tensor<2>) -> Vec<f32> {
    tensor.into_data().iter().collect()
}

#[test]
fn the_sum_is_that_of_two_tensors() {
    // Below and above the size that is added in place, and across the edges of its tiles.
    for [rows, d_output, d_input] in [[1, 4, 2], [3, 700, 4], [300, 700, 16], [257, 513, 1]] {
        let output = matrix(rows, d_output, 7);
        let (input, weight) = (matrix(rows, d_input, 11), matrix(d_output, d_input, 13));
        let expected = output.clone() + input.clone().matmul(weight.clone().transpose());
        let found = values(add_product(output, input, weight));
        let expected = values(expected);
        assert!(expected.iter().any(|value| *value != 0.0));
        for (found, expected) in found.iter().zip(&expected) {
            // At most 16 products of numbers below 1, in another order.
            assert!(
                (found - expected).abs() <= 4e-6,
                "{found} {expected} {rows}x{d_output}"
            );
        }
    }
}

#[test]
fn tensors_that_share_the_output_keep_their_values() {
    let output = matrix(300, 700, 7);
    let (shared, before) = (output.clone(), values(output.clone()));
    let sum = values(add_product(output, matrix(300, 2, 11), matrix(700, 2, 13)));
    assert_ne!(sum, before);
    assert_eq!(values(shared), before);
}
