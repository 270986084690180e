//! `LLM.int8`: signed bytes with one scale a row: `value = q · scb / 127`.
//!
//! The tensors of a weight `x.weight`, as `Linear8bitLt.state_dict()` of bitsandbytes writes them: I8 `[d_output, d_input]`,
//! `x.SCB` F32 `[d_output]`, the largest size in each row, and `x.weight_format`, a number that is 0 for rows as they come.
//! Multiplied by default is the decoded weight; bitsandbytes rounds the activations to 8 bits as well
//! (<https://arxiv.org/abs/2208.07339>), which [`linear_int8`](crate::linear_int8) does.

use crate::{
    Encode, FormatEntry, FoundPart, FoundWeight, Part, Parts, QuantError, QuantFormat,
    StoredTensor, TensorFile, expect_part,
    kernels::{
        InputRows, Int8Rows, OutputTile, STEP_LEN, WeightRows, dot_bytes, dot_decoded, widen_bytes,
    },
    num_values,
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

#[cfg(feature = "cube")]
use crate::{
    DeviceWords,
    cube::{DecodeEight, Kernels, bits::signed_at},
};

use super::quant_state::bad_description;

inventory::submit! { FormatEntry(&Int8) }

/// Eight bits and a share of a scale a value.
#[derive(Debug)]
struct Int8;

const SCB: &str = "SCB";
/// One over the largest code.
const STEP: f32 = 1.0 / 127.0;

impl QuantFormat for Int8 {
    fn name(&self) -> &'static str {
        "llm_int8"
    }

    fn find(&self, name: &str, file: &dyn TensorFile) -> Result<Option<FoundWeight>, QuantError> {
        let Some(module) = name.strip_suffix("weight") else {
            return Ok(None);
        };
        let scales = format!("{module}{SCB}");
        let (Some(weight), Some(_)) = (file.head(name), file.head(&scales)) else {
            return Ok(None);
        };
        if weight.tag != "I8" {
            return Ok(None);
        }
        let layout = format!("{module}weight_format");
        let has_layout = file.head(&layout).is_some();
        if has_layout {
            self.check_layout(&layout, file)?;
        }
        Ok(Some(FoundWeight {
            format: &Self,
            shape: weight.shape.to_vec(),
            parts: vec![
                FoundPart::in_file(Part::VALUES, name),
                FoundPart::in_file(SCB, scales),
            ],
            described_by: has_layout.then_some(layout).into_iter().collect(),
        }))
    }

    fn validate(&self, shape: [usize; 2], parts: &Parts) -> Result<(), QuantError> {
        expect_part(
            self.name(),
            parts,
            Part::VALUES,
            num_values(self.name(), shape)?,
        )?;
        match parts.get(SCB).map(|part| part.tag.as_str()) {
            Some("F32") | None => {
                let num_bytes = shape[0].saturating_mul(size_of::<f32>());
                expect_part(self.name(), parts, SCB, num_bytes)
            }
            Some(tag) => Err(QuantError::BadPart {
                format: self.name(),
                part: SCB,
                found: format!("is of type {tag}"),
                expected: "F32".into(),
            }),
        }
    }

    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        let values = values.chunks_exact_mut(rows.d_input());
        for (row, values) in rows.iter().zip(values) {
            let (codes, scale) = codes_and_scale(&row);
            widen_bytes(codes, |code| value(code, scale), values);
        }
    }

    fn dot_rows(&self, rows: &WeightRows<'_>, input: InputRows<'_>, output: &mut OutputTile<'_>) {
        if !rows.d_input().is_multiple_of(STEP_LEN) {
            let decode = |row: &WeightRows<'_>, values: &mut [f32]| self.decode_rows(row, values);
            return dot_decoded(decode, rows, input, output);
        }
        for (column, row) in rows.iter().enumerate() {
            let (codes, scale) = codes_and_scale(&row);
            let mut output = output.narrow(column..column + 1);
            dot_bytes(codes, |code| value(code, scale), input, &mut output);
        }
    }

    fn int8_rows<'a>(&self, rows: &WeightRows<'a>) -> Option<Int8Rows<'a>> {
        let scales = rows.parts().get(SCB).and_then(Part::scalars);
        let scales = scales.expect("the parts were validated");
        Some(Int8Rows {
            codes: &rows.parts().bytes(Part::VALUES)[rows.values()],
            scales: rows.rows().map(|row| scales.get(row) * STEP).collect(),
        })
    }

    #[cfg(feature = "cube")]
    fn device_words(&self, shape: [usize; 2], parts: &Parts) -> Option<DeviceWords> {
        let d_input = u32::try_from(shape[1]).ok()?;
        let names = [Part::VALUES, SCB];
        let kernels = Kernels::<Self>::shared();
        Some(DeviceWords::of_parts(kernels, &[d_input], &names, parts))
    }

    fn encoders(&self) -> &'static [&'static dyn Encode] {
        &[&Self]
    }
}

/// The codes of one row and its scale.
fn codes_and_scale<'a>(row: &WeightRows<'a>) -> (&'a [u8], f32) {
    let scales = row.parts().get(SCB).and_then(Part::scalars);
    let scales = scales.expect("the parts were validated");
    let codes = &row.parts().bytes(Part::VALUES)[row.values()];
    (codes, scales.get(row.rows().start))
}

#[inline(always)]
fn value(code: u8, scale: f32) -> f32 {
    f32::from(code.cast_signed()) * scale * STEP
}

/// Words: values a row, where the codes begin, where the scales begin.
#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Int8 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let d_input = words[0] as usize;
        let codes = 4 * words[1] as usize + start;
        let scales = words[2] as usize;
        #[unroll]
        for k in 0..8usize {
            let scale = f32::reinterpret(words[scales + (start + k) / d_input]);
            values[k] = signed_at(words, codes + k) * scale * STEP;
        }
    }
}

impl Int8 {
    /// That the rows stand as they come.
    fn check_layout(&self, layout: &str, file: &dyn TensorFile) -> Result<(), QuantError> {
        let wrong = |found| {
            let expected = "0, rows as they come";
            Err(bad_description(self.name(), layout, found, expected))
        };
        let head = file.head(layout);
        let is_byte = head.is_some_and(|head| head.tag == "U8" && matches!(head.shape, [] | [1]));
        if !is_byte {
            return wrong("is not one byte".into());
        }
        let bytes = file.read(layout).map_err(|source| QuantError::Read {
            format: self.name(),
            tensor: layout.into(),
            source,
        })?;
        let known = ["row", "col32", "col_turing", "col_ampere"];
        match *bytes {
            [0] => Ok(()),
            [number] => {
                let known = known.get(usize::from(number)).copied();
                let layout = known.unwrap_or("unknown");
                wrong(format!("says {number}, the layout {layout}"))
            }
            _ => wrong("is not one byte".into()),
        }
    }
}

impl Encode for Int8 {
    fn format(&self) -> &'static dyn QuantFormat {
        &Self
    }

    fn takes(&self, shape: &[usize]) -> bool {
        shape.len() >= 2
    }

    fn encode(&self, values: &[f32], [d_output, d_input]: [usize; 2]) -> Parts {
        let (mut codes, mut scales) = (Vec::with_capacity(values.len()), Vec::new());
        for row in 0..d_output {
            let row = &values[row * d_input..][..d_input];
            let largest = row.iter().fold(0.0_f32, |max, value| max.max(value.abs()));
            let factor = if largest == 0.0 { 0.0 } else { 127.0 / largest };
            codes.extend(row.iter().map(|value| code(value * factor)));
            scales.extend(largest.to_le_bytes());
        }
        let part = |name, tag: &str, shape: Vec<usize>, bytes: Vec<u8>| Part {
            name,
            tag: tag.into(),
            shape,
            bytes: bytes.into(),
        };
        Parts::new(vec![
            part(Part::VALUES, "I8", vec![d_output, d_input], codes),
            part(SCB, "F32", vec![d_output], scales),
        ])
    }

    fn stored_as(&self, name: &str, shape: &[usize]) -> Vec<StoredTensor> {
        let module = name.strip_suffix("weight").unwrap_or(name);
        let scales = StoredTensor::floats(format!("{module}{SCB}"), SCB, &shape[..1]);
        let num_values = shape.iter().product();
        vec![scales, StoredTensor::values(name, "I8", shape, num_values)]
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the argument is at most 127 in size"
)]
fn code(ratio: f32) -> u8 {
    (ratio.round_ties_even() as i8).cast_unsigned()
}
