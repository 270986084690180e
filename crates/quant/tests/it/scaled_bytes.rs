//! Bytes with a scale beside them: what they are, and which files are refused.

use std::path::Path;

use overglaze_quant::{Part, Parts, QuantError, QuantizedTensor, find_weight, format_by_name};

use crate::tensor_file::MemoryFile;

fn decoded(weight: &QuantizedTensor) -> Vec<f32> {
    let [d_output, d_input] = weight.shape();
    let mut values = vec![0.0; d_output * d_input];
    weight.decode_rows(0..d_output, &mut values);
    values
}

fn case(name: &str) -> MemoryFile {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/quant_fp8");
    MemoryFile::open(&root.join(format!("{name}.safetensors")))
}

#[test]
fn cases_decode_bit_for_bit() {
    for name in ["scaled_f8_e4m3", "scaled_f8_e5m2", "scaled_int8"] {
        let file = case(name);
        let layers: Vec<_> = file.names_after("out.dequant.").collect();
        assert_eq!(layers, ["new", "old", "rows"]);
        for layer in layers {
            let weight = file.weight(&format!("param.{layer}.weight")).unwrap();
            let expected = file.floats(&format!("out.dequant.{layer}"));
            assert_eq!(weight.format().name(), "scaled_bytes", "{layer}");
            let found = decoded(&weight);
            assert_eq!(bits(&found), bits(&expected), "{name} {layer}");
            check_rows(&weight, &found);
        }
    }
}

/// Rows from each row on, alone and in products.
fn check_rows(weight: &QuantizedTensor, expected: &[f32]) {
    let [d_output, d_input] = weight.shape();
    for row in 0..d_output {
        let mut values = vec![0.0; d_input];
        weight.decode_rows(row..row + 1, &mut values);
        assert_eq!(bits(&values), bits(&expected[row * d_input..][..d_input]));
    }
    let input = crate::packing::values(3 * d_input);
    let (mut found, mut plain) = (vec![0.0; 3 * d_output], vec![0.0; 3 * d_output]);
    weight.linear_into(&input, &mut found);
    weight.linear_reference(&input, &mut plain);
    let largest = expected
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    for (found, plain) in found.iter().zip(&plain) {
        // Sums of 256 products in another order; inputs are at most 1.
        assert!(
            (found - plain).abs() <= 256.0 * f32::EPSILON * largest,
            "{found}, {plain}"
        );
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn what_belongs_to_the_weight_is_named() {
    let file = case("scaled_f8_e4m3");
    for (layer, expected) in [
        ("old", vec!["param.old.scale_input"]),
        (
            "new",
            vec!["param.new.input_scale", "param.new.comfy_quant"],
        ),
        ("rows", vec![]),
    ] {
        let found = find_weight(&format!("param.{layer}.weight"), &file).unwrap();
        assert_eq!(found.described_by, expected);
    }
}

/// A layer of 2 rows of 3 bytes.
fn layer(tag: &str) -> MemoryFile {
    MemoryFile::default().with("a.weight", tag, &[2, 3], vec![0x38; 6])
}

fn with_scale(tag: &str) -> MemoryFile {
    layer(tag).with("a.weight_scale", "F32", &[], 2_f32.to_le_bytes().to_vec())
}

#[test]
fn descriptions_may_stand_in_the_text_of_the_file() {
    let text = r#"{"format_version": "1.0", "layers": {"a": {"format": "float8_e4m3fn"}}}"#;
    // ComfyUI allows bytes without a type of their own.
    let file = with_scale("U8").with_text(METADATA, text);
    let weight = file.weight("a.weight").unwrap();
    assert_eq!(
        (weight.format().name(), decoded(&weight)),
        ("scaled_bytes", vec![2.0; 6])
    );
    let text = r#"{"layers": {"b": {"format": "nvfp4"}}}"#;
    let file = with_scale("F8_E4M3").with_text(METADATA, text);
    assert_eq!(decoded(&file.weight("a.weight").unwrap()), vec![2.0; 6]);
}

const METADATA: &str = "_quantization_metadata";

fn refused(file: &MemoryFile) -> String {
    match file.weight("a.weight") {
        Err(error) => error.to_string(),
        Ok(weight) => format!("taken as {}", weight.format().name()),
    }
}

fn described(tag: &str, text: &str) -> MemoryFile {
    let bytes = text.as_bytes().to_vec();
    with_scale(tag).with("a.comfy_quant", "U8", &[bytes.len()], bytes)
}

/// Checks that the file is refused for what `place` is.
fn check(file: &MemoryFile, place: &str, found: &str, expected: &str) {
    let message = format!(
        "`{place}`, which describes a scaled_bytes weight, {found}, expected {expected}; quantize the weight again"
    );
    assert_eq!(refused(file), message);
}

#[test]
fn other_formats_are_refused_by_name() {
    let formats =
        "one of `float8_e4m3fn`, `float8_e5m2`, `int8_tensorwise` for values of that type";
    for (tag, name) in [
        ("U8", "nvfp4"),
        ("F8_E4M3", "nvfp4"),
        ("F8_E4M3", "mxfp8"),
        ("F8_E4M3", "float8_e5m2"),
        ("I8", "float8_e4m3fn"),
        ("I8", "int8_blockwise"),
        ("I8", ""),
    ] {
        let json = format!(r#"{{"format": "{name}"}}"#);
        let found = format!("names the format `{name}` for values stored as `{tag}`");
        check(&described(tag, &json), "a.comfy_quant", &found, formats);
        let text = format!(r#"{{"layers": {{"a": {json}}}}}"#);
        let file = with_scale(tag).with_text(METADATA, &text);
        check(&file, METADATA, &found, formats);
    }
    check(
        &described("I8", r#"{"format": "int8_tensorwise", "convrot": true}"#),
        "a.comfy_quant",
        "says that rows are rotated",
        "plain rows",
    );
}

#[test]
fn descriptions_that_cannot_be_read_are_refused() {
    let json = "JSON that names a `format`";
    for (text, why) in [
        (
            r#"{"format": 8}"#.to_owned(),
            "invalid type: integer `8`, expected a string at line 1 column 12",
        ),
        ("{}".to_owned(), "missing field `format` at line 1 column 2"),
        (
            "[".repeat(1000),
            "invalid type: sequence, expected a string at line 1 column 1",
        ),
        (
            format!("{{\"a\": {}", "[".repeat(1000)),
            "EOF while parsing a list at line 1 column 1006",
        ),
        (
            String::new(),
            "EOF while parsing a value at line 1 column 0",
        ),
    ] {
        let found = format!("cannot be read ({why})");
        check(&described("I8", &text), "a.comfy_quant", &found, json);
    }
    for (tag, shape) in [("F32", &[1][..]), ("U8", &[2, 2]), ("U8", &[1 << 20])] {
        let file = with_scale("I8").with("a.comfy_quant", tag, shape, vec![0; 4]);
        let found = format!("is of type `{tag}` and shape {shape:?}");
        check(&file, "a.comfy_quant", &found, json);
    }
    let mut file = described("I8", "{}");
    file.spoil("a.comfy_quant");
    assert_eq!(
        refused(&file),
        "the tensor `a.comfy_quant`, which belongs to a scaled_bytes weight, cannot be read"
    );
}

#[test]
fn what_other_schemes_have_is_refused() {
    for other in [
        "pre_quant_scale",
        "weight_scale_2",
        "weight_zero_point",
        "weight_g_idx",
        "weight_scale_inv",
    ] {
        let other = format!("a.{other}");
        let file = with_scale("F8_E4M3").with(&other, "F32", &[1], vec![0; 4]);
        let expected = "one tensor of scales and nothing else";
        check(&file, &other, "stands beside `a.weight_scale`", expected);
    }
    let mut file = described("F8_E4M3", r#"{"format": "float8_e4m3fn"}"#);
    file.remove("a.weight_scale");
    assert_eq!(
        refused(&file),
        "the file has no tensor `a.weight_scale`; check its name"
    );
}

#[test]
fn scales_of_other_shapes_are_refused() {
    for name in ["a.scale_weight", "a.weight_scale", "a.weight_scale_inv"] {
        for shape in [&[1, 2][..], &[3], &[2, 2], &[0], &[usize::MAX, usize::MAX]] {
            let file = layer("F8_E4M3").with(name, "F32", shape, vec![0; 8]);
            let found = format!("has the shape {shape:?}");
            check(&file, name, &found, "one number or 2, a row each");
        }
    }
    for shape in [&[][..], &[1], &[1, 1], &[2], &[2, 1]] {
        let bytes = vec![0; 4 * shape.iter().product::<usize>()];
        let file = layer("F8_E4M3").with("a.scale_weight", "F32", shape, bytes);
        assert_eq!(refused(&file), "taken as scaled_bytes", "{shape:?}");
    }
}

/// A scale is read as it is: the values say what is wrong with it.
#[test]
fn scales_that_are_no_finite_numbers_pass_through() {
    let scale = f32::INFINITY.to_le_bytes().to_vec();
    let file = layer("F8_E4M3").with("a.scale_weight", "F32", &[], scale);
    assert_eq!(
        decoded(&file.weight("a.weight").unwrap()),
        [f32::INFINITY; 6]
    );
}

#[test]
fn parts_are_checked() {
    let values = || Part {
        name: Part::VALUES,
        tag: "I8".into(),
        shape: vec![2, 3],
        bytes: vec![0; 6].into(),
    };
    let scale = |tag: &str, num_bytes: usize| Part {
        name: "scale",
        tag: tag.into(),
        shape: Vec::new(),
        bytes: vec![0; num_bytes].into(),
    };
    let refused = |parts: Vec<Part>| -> QuantError {
        let format = format_by_name("scaled_bytes").unwrap();
        QuantizedTensor::new(format, [2, 3], Parts::new(parts)).unwrap_err()
    };
    for (tag, num_bytes, found) in [
        ("F32", 12, "has 3 numbers"),
        ("F32", 0, "has 0 numbers"),
        ("BOOL", 2, "is of type BOOL"),
        ("U8", 2, "is of type U8"),
    ] {
        let expected = format!(
            "the part `scale` of a scaled_bytes weight {found}, expected one number or 2, a row each; quantize the \
             weight again"
        );
        assert_eq!(
            refused(vec![values(), scale(tag, num_bytes)]).to_string(),
            expected
        );
    }
    assert_eq!(
        refused(vec![values()]).to_string(),
        "a scaled_bytes weight has no part `scale`; add it, or choose the format that its parts belong to"
    );
    assert_eq!(
        refused(vec![scale("F32", 4)]).to_string(),
        "a scaled_bytes weight has no part `values`; add it, or choose the format that its parts belong to"
    );
}
