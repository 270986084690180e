//! SDNQ's weights against what its library makes of them, more strictly than by a tolerance for all.

use std::{
    fs,
    path::{Path, PathBuf},
};

use overglaze_quant::{QuantizedTensor, find_weight};

use crate::{packing::values, tensor_file::MemoryFile};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/quant_sdnq")
}

fn case(name: &str) -> MemoryFile {
    MemoryFile::open(&folder().join(format!("{name}.safetensors")))
}

/// Names of the cases, without `.safetensors`.
fn cases() -> Vec<String> {
    let entries = fs::read_dir(folder()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.is_file());
    let mut names: Vec<_> = files
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort_unstable();
    names
}

fn decoded(weight: &QuantizedTensor) -> Vec<f32> {
    let [d_output, d_input] = weight.shape();
    let mut values = vec![0.0; d_output * d_input];
    weight.decode_rows(0..d_output, &mut values);
    values
}

/// Checks every layer of a case, and says how many there are.
fn check_case(case_name: &str) -> usize {
    let file = case(case_name);
    let layers: Vec<_> = file.names_after("out.dequant.").collect();
    for layer in &layers {
        let name = format!("param.{layer}.weight");
        let output = format!("out.dequant.{layer}");
        let shape = file.part("values", &output).shape;
        assert_eq!(find_weight(&name, &file).unwrap().shape, shape, "{name}");
        let weight = file.weight(&name).unwrap();
        let expected = file.floats(&output);
        assert!(expected.iter().any(|value| *value != 0.0));
        let found = decoded(&weight);
        let is_sum = weight.parts().get("svd_up").is_some()
            || layer.contains("rotated")
            || case_name.contains("hadamard");
        let label = format!("{case_name} {layer}");
        check_values(&label, is_sum, &found, &expected);
        check_rows(&weight, &found);
        check_products(&weight);
    }
    layers.len()
}

/// Bit for bit, but where sums are taken in another order; in bf16 after rounding to it.
fn check_values(label: &str, is_sum: bool, found: &[f32], expected: &[f32]) {
    let largest = expected
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    let is_bf16 = label.contains("bf16");
    let tolerance = match (is_sum, is_bf16) {
        (false, _) => 0.0,
        // Each product of the low-rank part may be rounded another way.
        (true, true) => largest * 2.0_f32.powi(-7),
        // Sums of at most 32 terms.
        (true, false) => largest * 64.0 * f32::EPSILON,
    };
    for (found, expected) in found.iter().zip(expected) {
        let rounded = if is_bf16 {
            half::bf16::from_f32(*found).to_f32()
        } else {
            *found
        };
        let is_right = rounded.to_bits() == expected.to_bits()
            || is_sum && (found - expected).abs() <= tolerance;
        assert!(is_right, "{label}: {found}, {expected}");
    }
    assert_eq!(found.len(), expected.len());
}

/// Each row alone, and rows from each row on, are those of the whole.
fn check_rows(weight: &QuantizedTensor, expected: &[f32]) {
    let [d_output, d_input] = weight.shape();
    for row in 0..d_output {
        for rows in [row..row + 1, row..d_output] {
            let mut values = vec![0.0; rows.len() * d_input];
            weight.decode_rows(rows.clone(), &mut values);
            let expected = &expected[rows.start * d_input..rows.end * d_input];
            let mut pairs = values.iter().zip(expected);
            let are_same = pairs.all(|(found, expected)| found.to_bits() == expected.to_bits());
            assert!(are_same, "{rows:?}");
        }
    }
}

fn check_products(weight: &QuantizedTensor) {
    let [d_output, d_input] = weight.shape();
    for num_rows in [1, 5] {
        let input = values(num_rows * d_input);
        let mut found = vec![0.0; num_rows * d_output];
        let mut plain = found.clone();
        weight.linear_into(&input, &mut found);
        weight.linear_reference(&input, &mut plain);
        let largest = plain
            .iter()
            .fold(1.0_f32, |most, value| most.max(value.abs()));
        for (found, plain) in found.iter().zip(&plain) {
            // Sums of at most 144 products in another order; inputs are at most 1, and no sum is far below its terms.
            assert!(
                (found - plain).abs() <= 256.0 * f32::EPSILON * largest,
                "{found}, {plain}"
            );
        }
    }
}

#[test]
fn cases_of_the_library_decode_as_there() {
    let (extra, drawn): (Vec<_>, Vec<_>) = cases()
        .into_iter()
        .partition(|name| name.starts_with("sdnq_"));
    assert_eq!((extra.len(), drawn.len()), (8, 42));
    for case in drawn {
        assert!(check_case(&case) >= 3, "{case}");
    }
}

#[test]
fn every_code_of_every_type_decodes_as_in_the_library() {
    for (sort, num_types) in [("sdnq_int", 7), ("sdnq_uint", 8), ("sdnq_float", 57)] {
        let cases = cases().into_iter().filter(|name| name.starts_with(sort));
        let found: usize = cases.map(|case| check_case(&case)).sum();
        assert_eq!(found, num_types, "{sort}");
    }
}

#[test]
fn settings_that_go_together_rarely_decode_as_in_the_library() {
    let cases = cases().into_iter();
    let cases = cases.filter(|name| name.starts_with("sdnq_layers"));
    assert_eq!(cases.map(|case| check_case(&case)).sum::<usize>(), 18);
}

#[test]
fn folders_the_library_saved_are_found() {
    for (saved, name) in [
        ("saved_int8", "int8_f32"),
        ("saved_uint4_g32", "uint4_g32_f32"),
        ("saved_uint4_g32_svd8", "uint4_g32_svd8_f32"),
    ] {
        let saved = folder().join(saved);
        let config = fs::read_to_string(saved.join("quantization_config.json")).unwrap();
        let file = MemoryFile::open(&saved.join("diffusion_pytorch_model.safetensors"));
        let file = file.with_text("quantization_config", &config);
        let case = case(name);
        for layer in case.names_after("out.dequant.") {
            let found = file.weight(&format!("{layer}.weight")).unwrap();
            let expected = case.weight(&format!("param.{layer}.weight")).unwrap();
            assert_eq!(found.shape(), expected.shape());
            assert_eq!(decoded(&found), decoded(&expected));
        }
    }
}
