//! Products against the plain reference, over all kernels and awkward shapes.

use overglaze_quant::{
    QuantizedTensor,
    kernels::{Path, Plan},
};
use rayon::ThreadPoolBuilder;

use crate::packing::{block_formats, moved, packed, values};

/// Sums in another order: errors grow like the square root of the number of sums, in units of the largest
/// product's rounding; 8 of these leave room for the tail of the distribution.
fn check(weight: &QuantizedTensor, num_rows: usize) {
    let [d_output, d_input] = weight.shape();
    let input = values(num_rows * d_input);
    let output = product(weight, &input);
    let mut expected = vec![0.0; output.len()];
    weight.linear_reference(&input, &mut expected);
    let largest = largest_value(weight) * (d_input as f32).sqrt();
    let tolerance = 8.0 * f32::EPSILON * (d_input as f32).sqrt() * largest;
    assert!(expected.iter().any(|value| *value != 0.0));
    for (index, (output, expected)) in output.iter().zip(&expected).enumerate() {
        assert!(
            (output - expected).abs() <= tolerance,
            "{} {:?}, {num_rows} rows, row {} column {}: {output} instead of {expected}",
            weight.format().name(),
            weight.shape(),
            index / d_output,
            index % d_output,
        );
    }
}

#[test]
fn every_kernel_agrees_with_the_reference() {
    let shapes = [
        [1, 1],
        [2, 7],
        [3, 31],
        [15, 32],
        [16, 33],
        [17, 100],
        [64, 517],
        [67, 1030],
    ];
    for format in block_formats() {
        for shape in shapes {
            let weight = packed(format, shape);
            for num_rows in (1..=9).chain([33, 64, 70, 97, 130]) {
                check(&weight, num_rows);
            }
        }
    }
}

#[test]
fn tiles_beyond_the_first_are_right() {
    for format in block_formats() {
        let weight = packed(format, [600, 64]);
        check(&weight, 260);
        check(&weight, 1100);
        check(&packed(format, [70, 64]), 600);
    }
}

#[test]
fn results_do_not_depend_on_where_the_bytes_live() {
    for format in block_formats() {
        let weight = packed(format, [67, 517]);
        for num_rows in [1, 3, 5, 70, 100] {
            let input = values(num_rows * weight.shape()[1]);
            let expected = bits(&product(&moved(&weight, 0), &input));
            for offset in 1..8 {
                let output = product(&moved(&weight, offset), &input);
                assert_eq!(
                    bits(&output),
                    expected,
                    "{}, {num_rows} rows",
                    format.name()
                );
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for format in block_formats() {
        let weight = packed(format, [300, 1024]);
        for num_rows in [1, 4, 5, 70, 100, 300] {
            let input = values(num_rows * 1024);
            assert!(Plan::new(num_rows, weight.shape()).is_parallel);
            let [one, two, three] = [1, 2, 3].map(|num_threads| {
                let pool = ThreadPoolBuilder::new()
                    .num_threads(num_threads)
                    .build()
                    .unwrap();
                bits(&pool.install(|| product(&weight, &input)))
            });
            assert_eq!(one, two, "{}, {num_rows} rows", format.name());
            assert_eq!(one, three, "{}, {num_rows} rows", format.name());
        }
    }
}

#[test]
fn infinite_and_missing_numbers_pass_through() {
    for format in block_formats() {
        let weight = packed(format, [5, 64]);
        let d_input = weight.shape()[1];
        for num_rows in [1, 5, 100] {
            for special in [f32::INFINITY, f32::NAN] {
                let mut input = values(num_rows * d_input);
                input[d_input - 1] = special;
                let output = product(&weight, &input);
                let (first, others) = output.split_at(5);
                assert!(first.iter().all(|v| !v.is_finite()), "{}", format.name());
                assert!(others.iter().all(|v| v.is_finite()), "{}", format.name());
            }
        }
    }
}

#[test]
fn the_shapes_above_reach_every_kernel() {
    let paths = [1, 33, 130].map(|num_rows| Plan::new(num_rows, [67, 1030]).path);
    assert_eq!(paths, [Path::Dot, Path::Block, Path::Gemm]);
}

fn product(weight: &QuantizedTensor, input: &[f32]) -> Vec<f32> {
    let [d_output, d_input] = weight.shape();
    let mut output = vec![f32::NAN; input.len() / d_input * d_output];
    weight.linear_into(input, &mut output);
    output
}

fn largest_value(weight: &QuantizedTensor) -> f32 {
    let [d_output, d_input] = weight.shape();
    let mut decoded = vec![0.0; d_output * d_input];
    weight.decode_rows(0..d_output, &mut decoded);
    decoded.into_iter().map(f32::abs).fold(0.0, f32::max)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
