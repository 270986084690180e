//! SDNQ's weights that are not read, and with which words; and settings of single layers.

use overglaze_quant::find_weight;

use crate::tensor_file::MemoryFile;

/// A layer of 4 rows of 16 values of 4 bits, in groups of 8.
fn layer(config: &str) -> MemoryFile {
    MemoryFile::default()
        .with("a.weight", "U8", &[32], vec![0x21; 32])
        .with("a.scale", "F32", &[4, 2, 1], vec![0; 32])
        .with("a.zero_point", "F32", &[4, 2, 1], vec![0; 32])
        .with_text("quantization_config", config)
}

fn config(settings: &str) -> String {
    format!(r#"{{"quant_method": "sdnq", {settings}}}"#)
}

/// What the layer is taken as, or why it is not.
fn outcome(file: &MemoryFile) -> String {
    match file.weight("a.weight") {
        Err(error) => error.to_string(),
        Ok(weight) => {
            let shape = find_weight("a.weight", file).unwrap().shape;
            let mut parts = weight.parts().iter();
            let layout = parts.find(|part| part.name == "layout").unwrap();
            format!("{} {shape:?}", layout.tag)
        }
    }
}

#[test]
fn each_layer_has_its_type() {
    for (settings, expected) in [
        (r#""weights_dtype": "uint4""#, "uint4 [4, 16]"),
        (
            r#""weights_dtype": "int8", "modules_dtype_dict": {"uint4": ["a"]}"#,
            "uint4 [4, 16]",
        ),
        (
            r#""weights_dtype": "uint4", "modules_dtype_dict": {"int8": ["b"]}"#,
            "uint4 [4, 16]",
        ),
        (
            r#""weights_dtype": "uint2", "modules_dtype_dict": {"minimum_4bit": ["a.weight"]}"#,
            "uint4 [4, 16]",
        ),
        (
            r#""weights_dtype": "int2", "modules_dtype_dict": {"minimum-uint4-bits": [".a"]}"#,
            "uint4 [4, 16]",
        ),
        (
            r#""weights_dtype": "uint4", "modules_dtype_dict": {"minimum_2bit": ["a"]}"#,
            "uint4 [4, 16]",
        ),
        (
            r#""weights_dtype": "int8", "modules_quant_config": {"a": {"weights_dtype": "uint4"}}"#,
            "uint4 [4, 16]",
        ),
        (
            r#""weights_dtype": "ufp4", "modules_dtype_dict": null"#,
            "ufp4 [4, 16]",
        ),
        (r#""weights_dtype": "uint2""#, "uint2 [4, 32]"),
        // What names no layer that there is.
        (
            r#""weights_dtype": "uint4", "modules_dtype_dict": {"int8": ["", "aa", ".b", "*c"]}, "modules_quant_config": {"q": {"weights_dtype": "none"}}"#,
            "uint4 [4, 16]",
        ),
    ] {
        assert_eq!(outcome(&layer(&config(settings))), expected, "{settings}");
    }
}

#[test]
fn settings_that_cannot_be_read_are_refused() {
    let deep = format!(r#""other": {}{}"#, "[".repeat(1000), "]".repeat(1000));
    for (settings, expected) in [
        (
            r#""weights_dtype": "float12_e5m6fn""#,
            "has `a.weight` in type `float12_e5m6fn`, expected a type of the library's own of at most 8 bits, \
             `float8_e4m3fn` or `float8_e5m2`",
        ),
        (
            r#""weights_dtype": "uint4", "modules_dtype_dict": {"minimum_some": ["a"]}"#,
            "has layers under `minimum_some`, expected a type or a least number of bits",
        ),
        (
            r#""weights_dtype": "uint4", "scale_dtype": "uint6""#,
            "has scales of type `uint6`, expected one of [\"none\", \"uint8\", \"int8\", \"float8_e4m3fn\", \
             \"float8_e5m2\", \"fp8\"]",
        ),
        (
            r#""weights_dtype": "uint4", "use_hadamard": true, "hadamard_group_size": 0"#,
            "has a `hadamard_group_size` of 0, expected a power of two",
        ),
        (
            r#""weights_dtype": "ufp4", "use_codebook": true"#,
            "has a codebook for `ufp4`, expected unsigned whole numbers",
        ),
        (
            r#""weights_dtype": 4"#,
            "is not understood (invalid type: integer `4`, expected a string at line 1 column 44), expected settings of sdnq",
        ),
        (
            &deep,
            "is not understood (recursion limit exceeded at line 1 column 161), expected settings of sdnq",
        ),
        (
            r#""weights_dtype": "uint4", "use_hadamard": "yes""#,
            "is not understood (invalid type: string \"yes\", expected a boolean at line 1 column 73), expected settings of sdnq",
        ),
        (
            r#""weights_dtype": "uint4", "modules_quant_config": {"b": 3}"#,
            "is not understood (invalid type: integer `3`, expected struct Settings at line 1 column 82), expected settings of sdnq",
        ),
        (
            r#""hadamard_group_size": -1"#,
            "is not understood (invalid value: integer `-1`, expected usize at line 1 column 51), expected settings of sdnq",
        ),
    ] {
        let found = outcome(&layer(&config(settings)));
        let (start, end) = (
            "`quantization_config`, which describes a sdnq weight, ",
            "; quantize the weight again",
        );
        let clause = found.strip_prefix(start);
        let clause = clause.and_then(|clause| clause.strip_suffix(end));
        assert_eq!(clause.unwrap_or(&found), expected, "{settings}");
    }
}

/// The layer, with settings that fit it.
pub(crate) fn uint4() -> MemoryFile {
    layer(&config(r#""weights_dtype": "uint4""#))
}

#[test]
fn scales_that_fit_no_shape_are_refused() {
    for shape in [
        &[3, 2, 1][..],
        &[0, 2, 1],
        &[4, 0, 1],
        &[4, 3, 1],
        &[4, 2, 2],
        &[usize::MAX, 1, usize::MAX],
        // Of a transposed convolution.
        &[1, 4, 3, 3],
        // One for all, of unknown many rows.
        &[1, 1],
        &[],
    ] {
        assert_eq!(
            outcome(&uint4().with("a.scale", "F32", shape, Vec::new())),
            format!(
                "`a.scale`, which describes a sdnq weight, are {shape:?} for values of shape [32], expected one for \
                 every row or group of channels; quantize the weight again"
            )
        );
    }
}

fn without_zero_point() -> MemoryFile {
    let mut file = uint4();
    file.remove("a.zero_point");
    file
}

fn up(file: MemoryFile) -> MemoryFile {
    file.with("a.svd_up", "F32", &[4, 1], vec![0; 16])
}

#[test]
fn tensors_that_contradict_the_settings_are_refused() {
    for (file, expected) in [
        (
            uint4().with("a.weight", "I8", &[4, 16], vec![0; 64]),
            "`a.weight`, which describes a sdnq weight, is of type `I8`, expected one of [\"U8\"] for `uint4`; \
             quantize the weight again",
        ),
        (
            uint4().with("a.weight", "U8", &[0], Vec::new()),
            "`a.weight`, which describes a sdnq weight, has the shape [0], expected whole packs of values; quantize \
             the weight again",
        ),
        (
            uint4().with("a.zero_point", "F32", &[4, 1], vec![0; 16]),
            "`a.zero_point`, which describes a sdnq weight, has the shape [4, 1], expected that of the scales, [4, 2, 1]; \
             quantize the weight again",
        ),
        (
            without_zero_point(),
            "a sdnq weight has no part `zero_point`; add it, or choose the format that its parts belong to",
        ),
        (
            uint4().with_text("quantization_config", &config(r#""weights_dtype": "int4""#)),
            "`a.zero_point`, which describes a sdnq weight, stands beside values of type `int4`, expected no zero points \
             for those; quantize the weight again",
        ),
        (
            uint4().with("a.zero_point", "BOOL", &[4, 2, 1], vec![0; 8]),
            "the part `zero_point` of a sdnq weight is of type `BOOL`, expected a type of numbers; quantize the weight \
             again",
        ),
    ] {
        assert_eq!(outcome(&file), expected);
    }
}

#[test]
fn factors_and_nested_scales_that_do_not_fit_are_refused() {
    for (file, expected) in [
        (
            uint4().with("a.svd_down", "F32", &[1, 16], vec![0; 64]),
            "a sdnq weight has no part `svd_up`; add it, or choose the format that its parts belong to",
        ),
        (
            up(uint4()),
            "a sdnq weight has no part `svd_down`; add it, or choose the format that its parts belong to",
        ),
        (
            up(uint4()).with("a.svd_down", "F32", &[1, 15], vec![0; 60]),
            "`a.svd_up`, which describes a sdnq weight, has the shape [4, 1] over [1, 15], expected [4, rank] over \
             [rank, 16]; quantize the weight again",
        ),
        (
            uint4().with("a.svd_up", "F32", &[4, 2], vec![0; 32]).with(
                "a.svd_down",
                "F32",
                &[1, 32],
                vec![0; 128],
            ),
            "`a.svd_up`, which describes a sdnq weight, has the shape [4, 2] over [1, 32], expected [4, rank] over \
             [rank, 16]; quantize the weight again",
        ),
        (
            up(uint4()).with("a.svd_down", "I32", &[1, 16], vec![0; 64]),
            "the part `svd_down` of a sdnq weight is of type `I32`, expected a type of numbers; quantize the weight again",
        ),
        (
            uint4().with("a.scale_2", "F32", &[2], vec![0; 8]),
            "the part `scale_2` of a sdnq weight has 2 numbers, expected 1 numbers; quantize the weight again",
        ),
        (
            uint4().with("a.scale", "I64", &[4, 2, 1], vec![0; 64]),
            "the part `scale` of a sdnq weight is of type `I64`, expected a type of numbers; quantize the weight again",
        ),
        // Codes of scales without the scale of them.
        (
            uint4().with("a.scale", "U8", &[4, 2, 1], vec![0; 8]),
            "a sdnq weight has no part `scale_2`; add it, or choose the format that its parts belong to",
        ),
        (
            uint4().with("a.zero_point_2", "F32", &[1], vec![0; 4]),
            "a sdnq weight has no part `zero_point_scale`; add it, or choose the format that its parts belong to",
        ),
        (
            uint4().with("a.weight", "U8", &[usize::MAX, 2], Vec::new()),
            "`a.weight`, which describes a sdnq weight, has the shape [18446744073709551615, 2], expected whole packs of \
             values; quantize the weight again",
        ),
    ] {
        assert_eq!(outcome(&file), expected);
    }
}

#[test]
fn without_settings_only_clear_types_are_read() {
    let file = |tag: &str, shape: &[usize], has_zero_point: bool| {
        let num_values = shape.iter().product::<usize>() * if tag == "I64" { 8 } else { 1 };
        let file = MemoryFile::default()
            .with("a.weight", tag, shape, vec![0; num_values])
            .with("a.scale", "F32", &[4, 1], vec![0; 16]);
        if has_zero_point {
            file.with("a.zero_point", "F32", &[4, 1], vec![0; 16])
        } else {
            file
        }
    };
    for (tag, shape, has_zero_point, expected) in [
        ("I8", &[4, 16][..], false, "int8 [4, 16]"),
        ("U8", &[4, 16], true, "uint8 [4, 16]"),
        ("F8_E4M3", &[4, 16], false, "float8_e4m3fn [4, 16]"),
        ("F8_E5M2", &[4, 16], false, "float8_e5m2 [4, 16]"),
        (
            "I8",
            &[4, 4, 3, 3],
            false,
            "`a.scale`, which describes a sdnq weight, are [4, 1] for values of shape \
          [4, 4, 3, 3], expected one for every row or group of channels; quantize the weight again",
        ),
    ] {
        assert_eq!(outcome(&file(tag, shape, has_zero_point)), expected);
    }
    for (tag, shape) in [("U8", &[32][..]), ("U8", &[8, 5]), ("I64", &[8])] {
        for has_zero_point in [true, false] {
            assert_eq!(
                outcome(&file(tag, shape, has_zero_point)),
                format!(
                    "`a.weight`, which describes a sdnq weight, has bytes of shape {shape:?} that may be of several \
                     types, expected the file's `quantization_config` (`quantization_config.json`) to name the type; \
                     quantize the weight again"
                )
            );
        }
    }
}

#[test]
fn weights_of_others_are_left_to_them() {
    let other = layer(r#"{"quant_method": "bitsandbytes"}"#);
    let other = find_weight("a.weight", &other).unwrap_err();
    assert!(
        other
            .to_string()
            .starts_with("no weight format is called `U8`"),
        "{other}"
    );
    let plain = layer(&config(r#""weights_dtype": "uint4""#)).with(
        "a.weight",
        "F32",
        &[4, 16],
        vec![0; 256],
    );
    assert_eq!(
        find_weight("a.weight", &plain).unwrap().format.name(),
        "f32"
    );
}

/// A scale is read as it is: the values say what is wrong with it.
#[test]
fn scales_that_are_no_finite_numbers_pass_through() {
    for scale in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let file = uint4().with("a.scale", "F32", &[4, 2, 1], scale.to_le_bytes().repeat(8));
        let weight = file.weight("a.weight").unwrap();
        let mut values = [0.0; 64];
        weight.decode_rows(0..4, &mut values);
        // Codes are 1 and 2.
        for value in values {
            let is_it = value.is_nan() && scale.is_nan() || value.to_bits() == scale.to_bits();
            assert!(is_it, "{scale}: {value}");
        }
    }
}

#[test]
fn absurd_lengths_to_turn_are_what_fits() {
    for (asked, expected) in [("3", 4_u64), ("48", 16), ("18446744073709551615", 16)] {
        let settings = format!(
            r#""weights_dtype": "uint4", "use_hadamard": true, "hadamard_group_size": {asked}"#
        );
        let weight = layer(&config(&settings)).weight("a.weight").unwrap();
        let layout = weight.parts().bytes("layout");
        assert_eq!(layout[16..24], expected.to_le_bytes(), "{asked}");
    }
}
