//! Floats or signed integers of 8 bits with scales beside them: `value = scale · q`.
//!
//! | tensor | what |
//! |---|---|
//! | `x.weight` | `F8_E4M3`, `F8_E5M2` or I8, of logical shape; U8 where `x.comfy_quant` says which |
//! | `x.scale_weight`, or `x.weight_scale` | F32, F16 or BF16: one number, or one a row (`[d_output]` or `[d_output, 1]`) |
//! | `x.scale_input`, `x.input_scale`, `x.comfy_quant` | for products in 8 bits; nothing here needs them |
//!
//! The first name of the scale is that of `ComfyUI`'s scaled checkpoints, whose file also holds a tensor `scaled_fp8`; the second
//! is that of its later ones and of the checkpoints with a scale a row. Later ones say what they are in `x.comfy_quant`, JSON in
//! bytes, or in a text of the file; a weight that is said to be of another format, or has what other schemes have (scales of
//! blocks, zero points, a second scale), is refused. A scale that is no finite number is read as it is. Written are weights as
//! the later ones have them: `F8_E4M3` with `scale = max|w| / 448`, and the JSON `{"format": "float8_e4m3fn"}`.

use bytes::Bytes;
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use crate::{
    Encode, FormatEntry, FoundPart, FoundWeight, Part, Parts, QuantError, QuantFormat,
    StoredTensor, TensorFile, TensorHead, expect_part,
    kernels::{
        InputRows, OutputTile, STEP_LEN, Scalars, WeightRows, dot_bytes, dot_decoded, minifloat,
        widen_bytes,
    },
    num_values,
};

#[cfg(feature = "cube")]
use crate::{
    DeviceWords,
    cube::{DecodeEight, Kernels, bits::number_at, kind_of},
};

use super::description::Described;

inventory::submit! { FormatEntry(&ScaledBytes) }

/// Eight bits and a share of a scale a value.
#[derive(Debug)]
struct ScaledBytes;

const SCALE: &str = "scale";
/// A part without bytes, of which the tag is the type of the values, where the file stores plain bytes.
const TYPE: &str = "type";
/// The last is that of scales a block, which are no numbers of a row unless blocks are rows.
const SCALE_NAMES: [&str; 3] = ["scale_weight", "weight_scale", "weight_scale_inv"];
const DESCRIPTION: &str = "comfy_quant";
const UNUSED_NAMES: [&str; 3] = ["scale_input", "input_scale", DESCRIPTION];
/// What weights of other schemes have beside their scale.
const OTHER_NAMES: [&str; 4] = [
    "weight_scale_2",
    "pre_quant_scale",
    "weight_zero_point",
    "weight_g_idx",
];
const E4M3: &str = "F8_E4M3";
const E5M2: &str = "F8_E5M2";
/// Types, by the container's word and `ComfyUI`'s.
const TYPES: [(&str, &str); 3] = [
    (E4M3, "float8_e4m3fn"),
    (E5M2, "float8_e5m2"),
    ("I8", "int8_tensorwise"),
];

impl QuantFormat for ScaledBytes {
    fn name(&self) -> &'static str {
        "scaled_bytes"
    }

    fn find(&self, name: &str, file: &dyn TensorFile) -> Result<Option<FoundWeight>, QuantError> {
        let Some(module) = name.strip_suffix("weight") else {
            return Ok(None);
        };
        let is_read = |head: &TensorHead<'_>| head.tag == "U8" || is_type(head.tag);
        let Some(weight) = file.head(name).filter(is_read) else {
            return Ok(None);
        };
        let beside = |names: &[&str]| -> Vec<String> {
            let names = names.iter().map(|name| format!("{module}{name}"));
            names.filter(|name| file.head(name).is_some()).collect()
        };
        let described = Described::find(self.name(), module, file)?;
        let scales = beside(&SCALE_NAMES);
        let Some(scale) = scales.first() else {
            let tensor = format!("{module}weight_scale");
            // A weight that is said to have a scale is not taken for one without.
            return match described {
                Some(_) => Err(QuantError::MissingTensor { tensor }),
                None => Ok(None),
            };
        };
        let tag = match &described {
            Some(described) => described.tag(self.name(), weight.tag, &TYPES)?,
            None if weight.tag == "U8" => return Ok(None),
            None => weight.tag,
        };
        if let Some(other) = scales.get(1).or(beside(&OTHER_NAMES).first()) {
            let found = format!("stands beside `{scale}`");
            return Err(self.bad_tensor(other, found, "one tensor of scales and nothing else"));
        }
        self.check_scale(scale, weight, file)?;
        let mut parts = vec![
            FoundPart::in_file(Part::VALUES, name),
            FoundPart::in_file(SCALE, scale),
        ];
        if tag != weight.tag {
            parts.push(FoundPart::Known(Part {
                name: TYPE,
                tag: tag.into(),
                shape: Vec::new(),
                bytes: Bytes::new(),
            }));
        }
        Ok(Some(FoundWeight {
            format: &Self,
            shape: weight.shape.to_vec(),
            parts,
            described_by: beside(&UNUSED_NAMES),
        }))
    }

    fn validate(&self, shape: [usize; 2], parts: &Parts) -> Result<(), QuantError> {
        let num_values = num_values(self.name(), shape)?;
        expect_part(self.name(), parts, Part::VALUES, num_values)?;
        let values = type_of(parts);
        if !is_type(values) {
            let types = TYPES.map(|(own, _)| own).join(" or ");
            return Err(self.bad(Part::VALUES, format!("is of type {values}"), types));
        }
        let scale = parts.get(SCALE).ok_or(QuantError::MissingPart {
            format: self.name(),
            part: SCALE,
        })?;
        let expected = || format!("one number or {}, a row each", shape[0]);
        let scales = scale.scalars().filter(|_| is_float(&scale.tag));
        let scales = scales
            .ok_or_else(|| self.bad(SCALE, format!("is of type {}", scale.tag), expected()))?;
        match [1, shape[0]].contains(&scales.len()) {
            true => Ok(()),
            false => Err(self.bad(SCALE, format!("has {} numbers", scales.len()), expected())),
        }
    }

    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        let values = values.chunks_exact_mut(rows.d_input());
        for (row, values) in rows.iter().zip(values) {
            let (bytes, tag, scale) = parts_of(&row);
            match tag {
                E4M3 => widen_bytes(bytes, |byte| scale * minifloat::widen_f8_e4m3(byte), values),
                E5M2 => widen_bytes(bytes, |byte| scale * minifloat::widen_f8_e5m2(byte), values),
                _ => widen_bytes(bytes, |byte| scale * f32::from(byte.cast_signed()), values),
            }
        }
    }

    fn dot_rows(&self, rows: &WeightRows<'_>, input: InputRows<'_>, output: &mut OutputTile<'_>) {
        if !rows.d_input().is_multiple_of(STEP_LEN) {
            let decode = |row: &WeightRows<'_>, values: &mut [f32]| self.decode_rows(row, values);
            return dot_decoded(decode, rows, input, output);
        }
        for (column, row) in rows.iter().enumerate() {
            let (bytes, tag, scale) = parts_of(&row);
            let output = &mut output.narrow(column..column + 1);
            let float = |byte| scale * minifloat::widen_f8_e4m3(byte);
            let short = |byte| scale * minifloat::widen_f8_e5m2(byte);
            match tag {
                E4M3 => dot_bytes(bytes, float, input, output),
                E5M2 => dot_bytes(bytes, short, input, output),
                _ => dot_bytes(
                    bytes,
                    |byte: u8| scale * f32::from(byte.cast_signed()),
                    input,
                    output,
                ),
            }
        }
    }

    #[cfg(feature = "cube")]
    fn device_words(&self, shape: [usize; 2], parts: &Parts) -> Option<DeviceWords> {
        let scale = parts.get(SCALE)?;
        let is_one = scale.scalars()?.len() == 1;
        // One scale is as if the weight were one row.
        let row_len = if is_one {
            u32::MAX
        } else {
            u32::try_from(shape[1]).ok()?
        };
        let numbers = [row_len, kind_of(type_of(parts))?, kind_of(&scale.tag)?];
        let names = [Part::VALUES, SCALE, TYPE];
        let kernels = Kernels::<Self>::shared();
        Some(DeviceWords::of_parts(kernels, &numbers, &names, parts))
    }

    fn encoders(&self) -> &'static [&'static dyn Encode] {
        &[&ScaledE4m3]
    }
}

/// Words: values a row, the types of values and scales, where the values begin, where the scales begin.
#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for ScaledBytes {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let row_len = words[0] as usize;
        #[unroll]
        for k in 0..8usize {
            let at = start + k;
            let value = number_at(words, words[3] as usize, at, words[1]);
            values[k] = number_at(words, words[4] as usize, at / row_len, words[2]) * value;
        }
    }
}

/// The bytes of one row, their type and the row's scale.
fn parts_of<'a>(row: &WeightRows<'a>) -> (&'a [u8], &'a str, f32) {
    let parts = row.parts();
    let scales = parts.get(SCALE).and_then(Part::scalars);
    let scales: Scalars<'_> = scales.expect("the parts were validated");
    let scale = scales.get(if scales.len() == 1 {
        0
    } else {
        row.rows().start
    });
    let tag = type_of(parts);
    (&parts.bytes(Part::VALUES)[row.values()], tag, scale)
}

/// Floats of 8 bits with one scale a weight.
#[derive(Debug)]
struct ScaledE4m3;

impl Encode for ScaledE4m3 {
    fn format(&self) -> &'static dyn QuantFormat {
        &ScaledBytes
    }

    fn encoding(&self) -> &'static str {
        "fp8"
    }

    fn takes(&self, shape: &[usize]) -> bool {
        shape.len() >= 2
    }

    fn encode(&self, values: &[f32], _shape: [usize; 2]) -> Parts {
        let largest = values
            .iter()
            .fold(0.0_f32, |max, value| max.max(value.abs()));
        // A scale that is no normal number could not tell the values apart.
        let scale = (largest / minifloat::F8_E4M3_MAX).max(f32::MIN_POSITIVE);
        let codes = values
            .iter()
            .map(|value| minifloat::to_f8_e4m3(value / scale));
        let part = |name, tag: &str, bytes| Part {
            name,
            tag: tag.into(),
            shape: Vec::new(),
            bytes,
        };
        Parts::new(vec![
            part(Part::VALUES, E4M3, codes.collect()),
            part(SCALE, "F32", scale.to_le_bytes().to_vec().into()),
        ])
    }

    fn stored_as(&self, name: &str, shape: &[usize]) -> Vec<StoredTensor> {
        let module = name.strip_suffix("weight").unwrap_or(name);
        let mut description = r#"{"format": "float8_e4m3fn"}"#.to_owned();
        while !description.len().is_multiple_of(size_of::<f32>()) {
            description.push(' ');
        }
        vec![
            StoredTensor::floats(format!("{module}weight_scale"), SCALE, &[]),
            StoredTensor::text(format!("{module}{DESCRIPTION}"), description),
            StoredTensor::values(name, E4M3, shape, shape.iter().product()),
        ]
    }
}

impl ScaledBytes {
    /// That the tensor `scale` is one number, or one for each row of `weight`.
    fn check_scale(
        &self,
        scale: &str,
        weight: TensorHead<'_>,
        file: &dyn TensorFile,
    ) -> Result<(), QuantError> {
        let shape = file.head(scale).map_or(&[][..], |head| head.shape);
        // A vector is one row.
        let num_rows = match weight.shape {
            [num_rows, _, ..] => *num_rows,
            _ => 1,
        };
        let are_one = |sizes: &[usize]| sizes.iter().all(|size| *size == 1);
        let is_one_a_row = || {
            let first = shape.split_first();
            first.is_some_and(|(rows, others)| *rows == num_rows && are_one(others))
        };
        if are_one(shape) || is_one_a_row() {
            return Ok(());
        }
        let found = format!("has the shape {shape:?}");
        let expected = format!("one number or {num_rows}, a row each");
        Err(self.bad_tensor(scale, found, &expected))
    }

    fn bad_tensor(&self, tensor: &str, found: String, expected: &str) -> QuantError {
        QuantError::BadDescription {
            format: self.name(),
            place: tensor.into(),
            found,
            expected: expected.into(),
        }
    }

    fn bad(&self, part: &'static str, found: String, expected: String) -> QuantError {
        QuantError::BadPart {
            format: self.name(),
            part,
            found,
            expected,
        }
    }
}

/// The container's word for the type of the values.
fn type_of(parts: &Parts) -> &str {
    let part = parts.get(TYPE).or(parts.get(Part::VALUES));
    part.map_or("", |part| &part.tag)
}

fn is_type(tag: &str) -> bool {
    TYPES.iter().any(|(own, _)| *own == tag)
}

fn is_float(tag: &str) -> bool {
    ["F64", "F32", "F16", "BF16"].contains(&tag)
}
