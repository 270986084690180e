//! Broken and hostile files: what is refused, and with which words.

use overglaze_quant::{Part, Parts, QuantizedTensor};

use super::case;
use crate::tensor_file::MemoryFile;

const STATE: &str = "param.weight.quant_state.bitsandbytes__nf4";
const POWER: &str = "a power of two from 16 to 65536";

fn plain() -> MemoryFile {
    case("nf4_24x40_bs64_plain_f32")
}

fn nested() -> MemoryFile {
    case("nf4_24x40_bs64_nested_f32")
}

fn rows() -> MemoryFile {
    case("int8_24x32_thr0_f32")
}

fn check(file: &MemoryFile, expected: &str) {
    let error = file.weight("param.weight").unwrap_err().to_string();
    assert_eq!(error, expected);
}

fn check_state(mut file: MemoryFile, json: &str, found: &str, expected: &str) {
    file.set(STATE, "U8", &[json.len()], json.as_bytes().to_vec());
    check(
        &file,
        &format!(
            "`{STATE}`, which describes a nf4 weight, {found}, expected {expected}; quantize the weight again"
        ),
    );
}

/// The JSON of a weight `[24, 40]`, with `value` for `field`.
fn state(field: &str, value: &str) -> String {
    let fields = [
        ("quant_type", "\"nf4\""),
        ("blocksize", "64"),
        ("dtype", "\"float32\""),
        ("shape", "[24, 40]"),
    ];
    let fields = fields.map(|(name, ours)| {
        let value = if name == field { value } else { ours };
        format!("\"{name}\": {value}")
    });
    format!("{{{}}}", fields.join(", "))
}

fn nested_state(nested: &str) -> String {
    state("", "").replace('}', &format!(", {nested}}}"))
}

#[test]
fn the_states_of_these_tests_are_right_otherwise() {
    let mut file = plain();
    let json = state("", "").into_bytes();
    file.set(STATE, "U8", &[json.len()], json);
    assert!(file.weight("param.weight").is_ok());
    let mut file = nested();
    let fields = "\"nested_blocksize\": 256, \"nested_dtype\": \"float32\", \"nested_offset\": 0.5";
    let json = nested_state(fields).into_bytes();
    file.set(STATE, "U8", &[json.len()], json);
    assert!(file.weight("param.weight").is_ok());
}

#[test]
fn fields_that_cannot_be() {
    let check = |field: &str, value: &str, expected: &str| {
        let found = format!("has the {field} {value}");
        check_state(plain(), &state(field, value), &found, expected);
    };
    check("quant_type", "\"fp4\"", "the one in its name");
    for value in ["0", "3", "8", "131072"] {
        check("blocksize", value, POWER);
    }
    for value in [
        "[]",
        "[1, 1, 1, 1, 1, 1, 1, 1, 1]",
        "[4294967296, 4294967296]",
        "[2305843009213693952, 2]",
        "[1, 4294967296, 4294967296]",
    ] {
        let memory = "one to eight sizes of a matrix that fits memory";
        check("shape", value, memory);
    }
}

#[test]
fn nested_fields_that_cannot_be() {
    let both = "both or neither";
    for (fields, found, expected) in [
        (
            "\"nested_blocksize\": 256",
            "has one of nested_blocksize and nested_offset",
            both,
        ),
        (
            "\"nested_offset\": 0.5",
            "has one of nested_blocksize and nested_offset",
            both,
        ),
        (
            "\"nested_blocksize\": 0, \"nested_offset\": 0.5",
            "has the nested_blocksize 0",
            POWER,
        ),
        (
            "\"nested_blocksize\": 256, \"nested_dtype\": \"float16\", \"nested_offset\": 0.5",
            "has the nested_dtype \"float16\"",
            "float32",
        ),
        (
            "\"nested_blocksize\": 256, \"nested_offset\": 1e300",
            "has a nested_offset beyond f32",
            "a finite number",
        ),
    ] {
        check_state(nested(), &nested_state(fields), found, expected);
    }
}

#[test]
fn text_that_is_no_state() {
    let check = |json: &str, error: &str| {
        let found = format!("cannot be read ({error})");
        let expected = "a JSON object with quant_type, blocksize and shape";
        check_state(plain(), json, &found, expected);
    };
    check("", "EOF while parsing a value at line 1 column 0");
    check("nf4", "expected ident at line 1 column 2");
    check("{}", "missing field `quant_type` at line 1 column 2");
    check(
        &state("shape", "[24, -40]"),
        "invalid value: integer `-40`, expected usize at line 1 column 76",
    );
    check(
        &state("shape", "[24, 40.5]"),
        "invalid type: floating point `40.5`, expected usize at line 1 column 77",
    );
    check(
        &state("shape", "null"),
        "invalid type: null, expected a sequence at line 1 column 72",
    );
    check(
        &state("shape", "[1], \"shape\": [1]"),
        "duplicate field `shape` at line 1 column 80",
    );
    check(
        &state("blocksize", "9223372036854775808"),
        "invalid value: integer `9223372036854775808`, expected u32 at line 1 column 54",
    );
    check(
        &nested_state("\"nested_offset\": NaN"),
        "expected value at line 1 column 96",
    );
    check(
        &(state("", "") + "{}"),
        "trailing characters at line 1 column 78",
    );
}

#[test]
fn states_of_megabytes_are_not_read() {
    let expected = format!(
        "`{STATE}`, which describes a nf4 weight, has more than 65536 bytes, expected a short JSON object; quantize the \
         weight again"
    );
    let mut file = plain();
    for shape in [&[10 << 20][..], &[usize::MAX, 2]] {
        // There are no bytes to read: the size alone is enough.
        file.set(STATE, "U8", shape, Vec::new());
        check(&file, &expected);
    }
    file.set(STATE, "U8", &[1], vec![b' '; 65537]);
    check(&file, &expected);
}

#[test]
fn tensors_that_cannot_be_read() {
    for (file, name, format) in [
        (plain(), STATE, "nf4"),
        (rows(), "param.weight_format", "llm_int8"),
    ] {
        let mut file = file;
        file.spoil(name);
        check(
            &file,
            &format!("the tensor `{name}`, which belongs to a {format} weight, cannot be read"),
        );
    }
}

#[test]
fn tensors_that_are_missing() {
    let mut file = plain();
    file.remove(STATE);
    check(
        &file,
        "`param.weight.quant_state.bitsandbytes__*`, which describes a 4-bit bitsandbytes weight, is missing, \
         expected JSON with the weight's type, block size and shape; quantize the weight again",
    );
    for (mut file, part) in [
        (plain(), "absmax"),
        (nested(), "absmax"),
        (nested(), "nested_absmax"),
        (nested(), "nested_quant_map"),
    ] {
        file.remove(&format!("param.weight.{part}"));
        check(
            &file,
            &format!(
                "a nf4 weight has no part `{part}`; add it, or choose the format that its parts belong to"
            ),
        );
    }
    // A table is that of the type, unless the file brings its own.
    let mut file = plain();
    file.remove("param.weight.quant_map");
    assert!(file.weight("param.weight").is_ok());
}

#[test]
fn two_states_of_one_weight() {
    let mut file = plain();
    let json = state("quant_type", "\"fp4\"").into_bytes();
    file.set(&STATE.replace("nf4", "fp4"), "U8", &[json.len()], json);
    check(
        &file,
        "`param.weight` stands for 2 registered weight formats (fp4, nf4); link only one of the crates that bring them",
    );
}

#[test]
fn states_that_contradict_the_tensors() {
    for (mut file, tag, other) in [(plain(), "U8", "F32"), (nested(), "F32", "U8")] {
        file.set("param.weight.absmax", tag, &[15], vec![0; 15]);
        check(
            &file,
            &format!(
                "`param.weight.absmax`, which describes a nf4 weight, is of type {tag}, expected {other}, as its quant \
                 state says; quantize the weight again"
            ),
        );
    }
    let mut file = plain();
    let json = state("shape", "[24, 41]").into_bytes();
    file.set(STATE, "U8", &[json.len()], json);
    check(
        &file,
        "the part `values` of a nf4 weight has 480 bytes, expected 492; check its shape and format",
    );
}

#[test]
fn tensors_of_another_size() {
    for (file, part, tag, len, expected) in [
        (plain(), "absmax", "F32", 56, 60),
        (plain(), "quant_map", "F32", 60, 64),
        (nested(), "absmax", "U8", 14, 15),
        (nested(), "nested_absmax", "F32", 8, 4),
        (nested(), "nested_quant_map", "F32", 1020, 1024),
    ] {
        let mut file = file;
        let name = format!("param.weight.{part}");
        file.set(&name, tag, &[len], vec![0; len]);
        check(
            &file,
            &format!(
                "the part `{part}` of a nf4 weight has {len} bytes, expected {expected}; check its shape and format"
            ),
        );
    }
    let mut file = plain();
    file.set("param.weight.quant_map", "F16", &[32], vec![0; 64]);
    check(
        &file,
        "the part `quant_map` of a nf4 weight is of type F16, expected F32; quantize the weight again",
    );
}

#[test]
fn rows_of_bytes_in_another_arrangement() {
    let check = |tag: &str, shape: &[usize], bytes: &[u8], found: &str| {
        let mut file = rows();
        file.set("param.weight_format", tag, shape, bytes.to_vec());
        check(
            &file,
            &format!(
                "`param.weight_format`, which describes a llm_int8 weight, {found}, expected 0, rows as they come; \
                 quantize the weight again"
            ),
        );
    };
    check("U8", &[], &[1], "says 1, the layout col32");
    check("U8", &[1], &[3], "says 3, the layout col_ampere");
    check("U8", &[], &[9], "says 9, the layout unknown");
    check("U8", &[2], &[0, 0], "is not one byte");
    check("F32", &[], &[0; 4], "is not one byte");
    check("U8", &[], &[], "is not one byte");
    let mut file = rows();
    file.remove("param.weight_format");
    assert!(file.weight("param.weight").is_ok());
}

#[test]
fn rows_of_bytes_with_other_scales() {
    let mut file = rows();
    file.set("param.SCB", "F32", &[23], vec![0; 92]);
    check(
        &file,
        "the part `SCB` of a llm_int8 weight has 92 bytes, expected 96; check its shape and format",
    );
    file.set("param.SCB", "F16", &[24], vec![0; 48]);
    check(
        &file,
        "the part `SCB` of a llm_int8 weight is of type F16, expected F32; quantize the weight again",
    );
    file.set("param.weight", "F16", &[24, 32], vec![0; 2 * 24 * 32]);
    let weight = file.weight("param.weight").unwrap();
    assert_eq!(weight.format().name(), "f16");
    let weight = rows().weight("param.weight").unwrap();
    let values = weight.parts().get(Part::VALUES).unwrap().clone();
    let error = QuantizedTensor::new(weight.format(), [24, 32], Parts::new(vec![values]));
    assert_eq!(
        error.unwrap_err().to_string(),
        "a llm_int8 weight has no part `SCB`; add it, or choose the format that its parts belong to"
    );
}
