//! Tensors of any types, shapes and bytes, under the names formats look for: a weight found among them is refused by
//! `validate`, or decoded and multiplied.

#![no_main]

use std::{collections::BTreeMap, error::Error};

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use overglaze_quant::{
    FoundPart, FoundWeight, Part, Parts, QuantFormat, QuantizedTensor, TensorFile, TensorHead,
    find_weight, formats_by_name,
};

/// Weights larger than this are checked, not decoded: the time is for finding mistakes.
const MAX_VALUES: usize = 1 << 14;

fuzz_target!(|data: &[u8]| {
    let mut data = Unstructured::new(data);
    let _ = match data.arbitrary::<bool>() {
        Ok(true) => weight_of_a_file(&mut data),
        _ => parts_alone(&mut data),
    };
});

/// One format, and parts for it as a caller of the library might pass them.
fn parts_alone(data: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let format = *data.choose(&formats_by_name())?;
    let shape = [size(data)?, size(data)?];
    let mut parts = Vec::new();
    for name in PARTS {
        if *name == Part::VALUES || data.ratio(1, 3)? {
            let num_bytes = fitting_bytes(format, shape, data)?;
            parts.push(Part {
                name,
                tag: (*data.choose(TAGS)?).into(),
                shape: Vec::new(),
                bytes: bytes(num_bytes, data)?,
            });
        }
    }
    run(format, shape, Parts::new(parts));
    Ok(())
}

/// Tensors with the names of a format of several, and its texts.
fn weight_of_a_file(data: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let mut file = File::default();
    for name in TENSORS {
        if *name == "fc.weight" || data.ratio(1, 3)? {
            let num_axes = data.int_in_range(0..=3)?;
            let shape = (0..num_axes).map(|_| size(data)).collect::<Result<_, _>>()?;
            let num_bytes = data.int_in_range(0..=600)?;
            let tag = (*data.choose(TAGS)?).to_owned();
            file.tensors.insert((*name).into(), (tag, shape, bytes(num_bytes, data)?));
        }
    }
    for state in STATES {
        if data.ratio(1, 8)? {
            let text = text(data)?;
            let tensor = ("U8".into(), vec![text.len()], text.into_bytes().into());
            file.tensors.insert((*state).into(), tensor);
        }
    }
    if data.arbitrary()? {
        file.config = Some(text(data)?);
    }
    let Ok(found) = find_weight("fc.weight", &file) else {
        return Ok(());
    };
    let Some(shape) = matrix(&found) else {
        return Ok(());
    };
    let parts = found.parts.iter().filter_map(|part| match part {
        FoundPart::Known(part) => Some(part.clone()),
        FoundPart::InFile { part, tensor } => {
            let (tag, shape, bytes) = file.tensors.get(tensor)?.clone();
            let name = part;
            Some(Part { name, tag, shape, bytes })
        }
    });
    run(found.format, shape, Parts::new(parts.collect()));
    Ok(())
}

fn run(format: &'static dyn QuantFormat, shape: [usize; 2], parts: Parts) {
    let Ok(weight) = QuantizedTensor::new(format, shape, parts) else {
        return;
    };
    let [d_output, d_input] = shape;
    if d_output == 0 || d_input == 0 || d_output.saturating_mul(d_input) > MAX_VALUES {
        return;
    }
    let mut row = vec![0.0; d_input];
    weight.decode_rows(0..1, &mut row);
    weight.decode_rows(d_output - 1..d_output, &mut row);
    // A number of rows for each kernel.
    for num_rows in [1, 12, 100] {
        let input = vec![0.5; num_rows * d_input];
        let mut output = vec![0.0; num_rows * d_output];
        weight.linear_into(&input, &mut output);
    }
}

fn matrix(found: &FoundWeight) -> Option<[usize; 2]> {
    match &*found.shape {
        [] => None,
        [d_input] => Some([1, *d_input]),
        [d_output, others @ ..] => {
            let mut others = others.iter();
            let d_input = others.try_fold(1_usize, |product, size| product.checked_mul(*size))?;
            Some([*d_output, d_input])
        }
    }
}

/// Mostly small, sometimes beyond all bounds.
fn size(data: &mut Unstructured<'_>) -> arbitrary::Result<usize> {
    match data.int_in_range(0..=15)? {
        0 => data.arbitrary(),
        1 => Ok(256),
        2 => Ok(64),
        3 => Ok(32),
        _ => data.int_in_range(0..=40),
    }
}

/// Often what the format wants, else any number.
fn fitting_bytes(
    format: &dyn QuantFormat,
    [d_output, d_input]: [usize; 2],
    data: &mut Unstructured<'_>,
) -> arbitrary::Result<usize> {
    let num_values = d_output.saturating_mul(d_input).min(MAX_VALUES);
    Ok(match (data.int_in_range(0..=7)?, format.block()) {
        (0..4, Some(block)) => num_values / block.len * block.bytes,
        (0..2, None) => num_values,
        (2, None) => num_values.div_ceil(2),
        (3, None) => d_output.min(MAX_VALUES) * 4,
        (4, _) => 18,
        (5, _) => 12,
        (6, _) => 64,
        _ => data.int_in_range(0..=1100)?,
    })
}

/// So many bytes: those the fuzzer still has, over and over.
fn bytes(num_bytes: usize, data: &mut Unstructured<'_>) -> arbitrary::Result<Bytes> {
    let seed = data.bytes(data.len().min(24))?;
    let seed = if seed.is_empty() { &[0x35] } else { seed };
    Ok(seed.iter().copied().cycle().take(num_bytes).collect())
}

/// JSON-like text of words that formats know, or any.
fn text(data: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    if data.ratio(1, 6)? {
        return String::arbitrary(data);
    }
    let mut entries = Vec::new();
    for _ in 0..data.int_in_range(0..=9)? {
        let key = *data.choose(KEYS)?;
        let value = match data.int_in_range(0..=5)? {
            0 => format!("{}", data.arbitrary::<i64>()?),
            1 => format!("{}", data.int_in_range(-2..=4096)?),
            2 => format!("{}", data.arbitrary::<bool>()?),
            3 => format!("[{}, {}]", size(data)?, size(data)?),
            4 => format!("{{\"{}\": [\"*\"]}}", data.choose(WORDS)?),
            _ => format!("\"{}\"", data.choose(WORDS)?),
        };
        entries.push(format!("\"{key}\": {value}"));
    }
    Ok(format!("{{{}}}", entries.join(", ")))
}

#[derive(Default)]
struct File {
    tensors: BTreeMap<String, (String, Vec<usize>, Bytes)>,
    config: Option<String>,
}

impl TensorFile for File {
    fn head(&self, name: &str) -> Option<TensorHead<'_>> {
        let (tag, shape, _) = self.tensors.get(name)?;
        Some(TensorHead { tag, shape })
    }

    fn read(&self, name: &str) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
        let (_, _, bytes) = self.tensors.get(name).ok_or("no such tensor")?;
        Ok(bytes.clone())
    }

    fn text(&self, key: &str) -> Option<&str> {
        (key == "quantization_config").then_some(self.config.as_deref()).flatten()
    }
}

const PARTS: &[&str] = &[
    Part::VALUES,
    "absmax",
    "quant_map",
    "nested_absmax",
    "nested_quant_map",
    "geometry",
    "SCB",
    "scale",
    "zero_point",
    "scale_2",
    "scale_zero_point",
    "zero_point_scale",
    "zero_point_2",
    "svd_up",
    "svd_down",
    "settings",
    "layout",
];
const TENSORS: &[&str] = &[
    "fc.weight",
    "fc.weight.absmax",
    "fc.weight.quant_map",
    "fc.weight.nested_absmax",
    "fc.weight.nested_quant_map",
    "fc.SCB",
    "fc.weight_format",
    "fc.scale",
    "fc.zero_point",
    "fc.scale_2",
    "fc.scale_zero_point",
    "fc.zero_point_scale",
    "fc.zero_point_2",
    "fc.svd_up",
    "fc.svd_down",
    "fc.scale_weight",
    "fc.weight_scale",
    "fc.comfy_quant",
];
const STATES: &[&str] = &[
    "fc.weight.quant_state.bitsandbytes__nf4",
    "fc.weight.quant_state.bitsandbytes__fp4",
    "fc.comfy_quant",
];
const TAGS: &[&str] = &[
    "F32", "F16", "BF16", "F64", "U8", "I8", "I32", "I64", "F8_E4M3", "F8_E5M2", "Q4_0",
];
const KEYS: &[&str] = &[
    "quant_method",
    "weights_dtype",
    "group_size",
    "use_codebook",
    "use_codebook_scale",
    "use_hadamard",
    "hadamard_group_size",
    "use_svd",
    "use_quantized_matmul",
    "modules_dtype_dict",
    "modules_quant_config",
    "blocksize",
    "shape",
    "dtype",
    "quant_type",
    "nested_blocksize",
    "nested_offset",
    "nested_dtype",
    "format",
];
const WORDS: &[&str] = &[
    "sdnq",
    "uint4",
    "int8",
    "uint1",
    "int3",
    "uint7",
    "float8_e4m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
    "float5_e1m4fnu",
    "nf4",
    "fp4",
    "float32",
    "uint8",
    "float8_e5m2",
    "nvfp4",
    "fc",
    "*",
];
