//! Decoders against what others computed, and fast ones against plain ones.

use std::fs;

use overglaze_quant::{
    Parts, QuantizedTensor, format_by_name, format_by_tag, formats_by_name, kernels::widen_f16,
};
use safetensors::SafeTensors;

/// A case of gguf-py: same bytes, same bits.
fn check_golden(tag: &str) {
    let path = format!(
        "{}/../../cases/quant_gguf/{tag}.safetensors",
        env!("CARGO_MANIFEST_DIR")
    );
    let file = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let packed = tensors.tensor("param.raw").unwrap();
    let expected = tensors.tensor("out.f32").unwrap();
    let shape = expected.shape().try_into().unwrap();
    let expected = f32_values(expected.data());
    assert!(expected.iter().any(|value| *value != 0.0));

    let parts = Parts::values(packed.data().to_vec().into());
    let weight = QuantizedTensor::new(format_by_tag(tag).unwrap(), shape, parts).unwrap();
    assert_eq!(bits(&decoded(&weight)), bits(&expected));
    check_any_rows(&weight, &expected);
}

/// Blocks that begin and end inside rows, and rows inside blocks, as reshaped tensors have them.
fn check_any_rows(weight: &QuantizedTensor, expected: &[f32]) {
    for d_input in [16, 24, 96, 384] {
        let shape = [expected.len() / d_input, d_input];
        if shape[0] * shape[1] != expected.len() {
            continue;
        }
        let reshaped =
            QuantizedTensor::new(weight.format(), shape, weight.parts().clone()).unwrap();
        for rows in [0..shape[0], 1..shape[0], 2..3, shape[0] - 1..shape[0]] {
            let mut values = vec![0.0; rows.len() * d_input];
            reshaped.decode_rows(rows.clone(), &mut values);
            let expected = &expected[rows.start * d_input..rows.end * d_input];
            assert_eq!(bits(&values), bits(expected), "{shape:?}, {rows:?}");
        }
        let input = crate::packing::values(3 * d_input);
        let (mut found, mut plain) = (vec![0.0; 3 * shape[0]], vec![0.0; 3 * shape[0]]);
        reshaped.linear_into(&input, &mut found);
        reshaped.linear_reference(&input, &mut plain);
        // Sums of at most 384 products in f32, in another order; inputs are at most 1.
        let largest = expected
            .iter()
            .fold(0.0_f32, |max, value| max.max(value.abs()));
        for (found, plain) in found.iter().zip(&plain) {
            let error = (found - plain).abs();
            assert!(
                error <= 384.0 * f32::EPSILON * largest,
                "{shape:?}: {found}, {plain}"
            );
        }
    }
}

#[test]
fn golden_cases_match_bit_for_bit() {
    for tag in [
        "BF16", "IQ1_M", "IQ1_S", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ3_S", "IQ3_XXS", "IQ4_NL",
        "IQ4_XS", "MXFP4", "NVFP4", "Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K",
        "Q6_K", "Q8_0", "TQ1_0", "TQ2_0",
    ] {
        check_golden(tag);
    }
}

#[test]
fn dense_values_decode_exactly() {
    let values = [
        0.0f32,
        -0.0,
        1.0,
        -1.5,
        65504.0,
        6.103_515_6e-5,
        5.960_464_5e-8,
        f32::INFINITY,
    ];
    check_dense("f32", values.map(f32::to_le_bytes).concat(), &values);
    check_dense(
        "f16",
        values
            .map(|v| half::f16::from_f32(v).to_le_bytes())
            .concat(),
        &values,
    );
    let values = [
        0.0f32,
        -0.0,
        1.0,
        -1.5,
        3.0e38,
        1.0e-38,
        9.2e-41,
        f32::NEG_INFINITY,
    ]
    .map(|value| half::bf16::from_f32(value).to_f32());
    check_dense(
        "bf16",
        values
            .map(|v| half::bf16::from_f32(v).to_le_bytes())
            .concat(),
        &values,
    );
}

fn check_dense(name: &str, bytes: Vec<u8>, expected: &[f32]) {
    let shape = [2, expected.len() / 2];
    let format = format_by_name(name).unwrap();
    let weight = QuantizedTensor::new(format, shape, Parts::values(bytes.into())).unwrap();
    assert_eq!(bits(&decoded(&weight)), bits(expected), "{name}");
}

#[test]
fn special_scales_pass_through() {
    for (scale, check) in [
        (
            half::f16::INFINITY,
            (|v: f32| v == f32::INFINITY) as fn(f32) -> bool,
        ),
        (half::f16::NEG_INFINITY, |v: f32| v == f32::NEG_INFINITY),
        (half::f16::NAN, f32::is_nan),
    ] {
        let bytes = [&scale.to_le_bytes()[..], &[1; 32]].concat();
        let format = format_by_name("q8_0").unwrap();
        let weight = QuantizedTensor::new(format, [1, 32], Parts::values(bytes.into())).unwrap();
        assert!(decoded(&weight).into_iter().all(check), "{scale}");
        let mut output = [0.0];
        weight.linear_into(&[1.0; 32], &mut output);
        assert!(check(output[0]), "{scale}: {output:?}");
    }
}

#[test]
fn names_and_tags_find_every_format() {
    for format in formats_by_name() {
        assert_eq!(format_by_name(format.name()).unwrap().name(), format.name());
        for tag in format.tags() {
            assert_eq!(format_by_tag(tag).unwrap().name(), format.name());
        }
    }
}

fn decoded(weight: &QuantizedTensor) -> Vec<f32> {
    let [d_output, d_input] = weight.shape();
    let mut values = vec![0.0; d_output * d_input];
    weight.decode_rows(0..d_output, &mut values);
    values
}

fn f32_values(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn binary16_numbers_widen_exactly() {
    for bits in 0..=u16::MAX {
        let expected = half::f16::from_bits(bits);
        let value = widen_f16(bits);
        if expected.is_finite() {
            assert_eq!(value.to_bits(), expected.to_f32().to_bits(), "{bits:#x}");
        } else {
            assert_eq!(value.is_nan(), expected.is_nan(), "{bits:#x}");
            assert_eq!(value < 0.0, expected.to_f32() < 0.0, "{bits:#x}");
            assert!(!value.is_finite(), "{bits:#x}");
        }
    }
}
