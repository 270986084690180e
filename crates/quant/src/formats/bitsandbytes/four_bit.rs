//! `NF4` and `FP4`: codes of 4 bits into a table of 16, and a scale for each block of values: `value = table[q] · absmax`.
//!
//! Blocks run over the flattened matrix, so one may begin in a row and end in the next; of two values in a byte the first is
//! in the high half. The tensors of a weight `w`, as `Linear4bit.state_dict()` of bitsandbytes writes them:
//!
//! | tensor | what |
//! |---|---|
//! | `w` | U8, two values a byte, of any shape |
//! | `w.absmax` | the scales, F32; U8 where they are quantized, too |
//! | `w.quant_map` | the table, F32 `[16]` |
//! | `w.nested_absmax`, `w.nested_quant_map` | F32 `[…]` and `[256]`: `absmax = map[q] · nested_absmax + offset` |
//! | `w.quant_state.bitsandbytes__nf4` (or `fp4`) | JSON: block sizes, offset, logical shape |
//!
//! The tables: NF4 has equal parts of a normal distribution (`QLoRA`, <https://arxiv.org/abs/2305.14314>, appendix E); FP4 has a
//! sign, two bits of exponent and one of mantissa, over its largest value. Decoded values are the products in f32;
//! bitsandbytes rounds them to the type it computes in.

use bytes::Bytes;

use crate::{
    Encode, FormatEntry, FoundPart, FoundWeight, Part, Parts, QuantError, QuantFormat,
    StoredTensor, TensorFile, expect_part,
    kernels::{WeightRows, look_up_floats},
    num_values,
};

#[cfg(feature = "cube")]
use crate::DeviceWords;

use super::{
    quant_state::{QuantState, bad_description},
    scales::{
        ABSMAX, GEOMETRY, Geometry, NESTED_ABSMAX, NESTED_TABLE, Scales, TABLE, geometry, part,
    },
};

inventory::submit! { FormatEntry(&NF4) }
inventory::submit! { FormatEntry(&FP4) }

static NF4: FourBit = FourBit {
    name: "nf4",
    table: [
        -1.0,
        -0.696_192_8,
        -0.525_073_05,
        -0.394_917_5,
        -0.284_441_38,
        -0.184_773_43,
        -0.091_050_036,
        0.0,
        0.079_580_3,
        0.160_930_2,
        0.246_112_3,
        0.337_915_24,
        0.440_709_83,
        0.562_617,
        0.722_956_84,
        1.0,
    ],
};

static FP4: FourBit = FourBit {
    name: "fp4",
    table: [
        0.0,
        0.005_208_333_5,
        0.666_666_7,
        1.0,
        0.333_333_34,
        0.5,
        0.166_666_67,
        0.25,
        0.0,
        -0.005_208_333_5,
        -0.666_666_7,
        -1.0,
        -0.333_333_34,
        -0.5,
        -0.166_666_67,
        -0.25,
    ],
};

/// Four bits and a share of a scale a value.
#[derive(Debug)]
struct FourBit {
    name: &'static str,
    /// The values of the codes, where a file does not bring its own.
    table: [f32; 16],
}

const STATE: &str = ".quant_state.bitsandbytes__";

impl QuantFormat for FourBit {
    fn name(&self) -> &'static str {
        self.name
    }

    fn find(&self, name: &str, file: &dyn TensorFile) -> Result<Option<FoundWeight>, QuantError> {
        if file.head(name).is_none() {
            return Ok(None);
        }
        let place = self.state_name(name);
        if file.head(&place).is_none() {
            return expect_some_state(name, file).map(|()| None);
        }
        let state = QuantState::read(self.name, &place, file)?;
        let nested = state.nested_blocksize.zip(state.nested_offset);
        self.check_absmax(name, nested.is_some(), file)?;
        let mut parts = vec![FoundPart::in_file(Part::VALUES, name)];
        for part in [ABSMAX, TABLE, NESTED_ABSMAX, NESTED_TABLE] {
            let tensor = format!("{name}.{part}");
            if file.head(&tensor).is_some() {
                parts.push(FoundPart::in_file(part, tensor));
            }
        }
        parts.push(FoundPart::Known(geometry(state.blocksize, nested)));
        Ok(Some(FoundWeight {
            format: self.registered(),
            shape: state.shape,
            parts,
            described_by: vec![place],
        }))
    }

    fn validate(&self, shape: [usize; 2], parts: &Parts) -> Result<(), QuantError> {
        let num_values = num_values(self.name, shape)?;
        expect_part(self.name, parts, Part::VALUES, num_values.div_ceil(2))?;
        expect_part(self.name, parts, GEOMETRY, 12)?;
        let Geometry {
            block_len,
            nested_len,
            ..
        } = Geometry::of(parts);
        let num_blocks = num_values.div_ceil(block_len);
        if parts.get(TABLE).is_some() {
            self.expect_floats(parts, TABLE, 16)?;
        }
        match parts.get(ABSMAX).map(|part| part.tag.as_str()) {
            Some("U8") => {
                expect_part(self.name, parts, ABSMAX, num_blocks)?;
                self.expect_floats(parts, NESTED_TABLE, 256)?;
                self.expect_floats(parts, NESTED_ABSMAX, num_blocks.div_ceil(nested_len))
            }
            _ => self.expect_floats(parts, ABSMAX, num_blocks),
        }
    }

    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        let scales = Scales::of(rows.parts());
        let table = self.table_of(rows.parts());
        let packed = rows.parts().bytes(Part::VALUES);
        let mut codes = [0; RUN_LEN];
        let mut at = rows.values().start;
        for values in values.chunks_mut(RUN_LEN) {
            let codes = &mut codes[..values.len()];
            unpack(packed, at, codes);
            look_up_floats(&table, codes, values);
            scales.multiply(at, values);
            at += values.len();
        }
    }

    #[cfg(feature = "cube")]
    fn device_words(&self, _: [usize; 2], parts: &Parts) -> Option<DeviceWords> {
        super::on_device::words(&self.table_of(parts), parts)
    }

    fn encoders(&self) -> &'static [&'static dyn Encode] {
        static ENCODERS: [&dyn Encode; 2] = [&NF4, &FP4];
        let (nf4, fp4) = ENCODERS.split_at(1);
        if self.name == NF4.name { nf4 } else { fp4 }
    }
}

impl FourBit {
    /// The same as it is registered.
    fn registered(&self) -> &'static dyn QuantFormat {
        if self.name == NF4.name { &NF4 } else { &FP4 }
    }

    fn state_name(&self, weight: &str) -> String {
        format!("{weight}{STATE}{}", self.name)
    }

    /// That the scales of the weight `name` are codes where its state says so, and nowhere else.
    fn check_absmax(
        &self,
        name: &str,
        is_nested: bool,
        file: &dyn TensorFile,
    ) -> Result<(), QuantError> {
        let absmax = format!("{name}.{ABSMAX}");
        let expected = if is_nested { "U8" } else { "F32" };
        match file.head(&absmax) {
            Some(head) if head.tag != expected => Err(bad_description(
                self.name,
                &absmax,
                format!("is of type {}", head.tag),
                &format!("{expected}, as its quant state says"),
            )),
            _ => Ok(()),
        }
    }

    fn table_of(&self, parts: &Parts) -> [f32; 16] {
        let own = parts.get(TABLE).and_then(Part::scalars);
        let mut table = self.table;
        if let Some(own) = own {
            table
                .iter_mut()
                .zip(own.iter())
                .for_each(|(value, own)| *value = own);
        }
        table
    }

    /// That `part` is `len` numbers of 32 bits.
    fn expect_floats(
        &self,
        parts: &Parts,
        part: &'static str,
        len: usize,
    ) -> Result<(), QuantError> {
        let Some(found) = parts.get(part) else {
            return Err(QuantError::MissingPart {
                format: self.name,
                part,
            });
        };
        if found.tag != "F32" {
            return Err(QuantError::BadPart {
                format: self.name,
                part,
                found: format!("is of type {}", found.tag),
                expected: "F32".into(),
            });
        }
        expect_part(self.name, parts, part, len * size_of::<f32>())
    }
}

impl Encode for FourBit {
    fn format(&self) -> &'static dyn QuantFormat {
        self.registered()
    }

    fn takes(&self, shape: &[usize]) -> bool {
        !shape.is_empty()
    }

    fn encode(&self, values: &[f32], _shape: [usize; 2]) -> Parts {
        let blocks = values.chunks(BLOCK_LEN);
        let scales: Vec<f32> = blocks.map(largest).collect();
        let mut packed = vec![0_u8; values.len().div_ceil(2)];
        for (at, value) in values.iter().enumerate() {
            let scale = scales[at / BLOCK_LEN];
            let ratio = if scale == 0.0 {
                0.0
            } else {
                value * scale.recip()
            };
            packed[at / 2] |= self.nearest(ratio) << (4 * (1 - at % 2));
        }
        let floats =
            |values: &[f32]| -> Bytes { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        Parts::new(vec![
            part(Part::VALUES, "U8", packed.len(), packed.into()),
            part(ABSMAX, "F32", scales.len(), floats(&scales)),
            part(TABLE, "F32", 16, floats(&self.table)),
            geometry(BLOCK_LEN_U32, None),
        ])
    }

    fn stored_as(&self, name: &str, shape: &[usize]) -> Vec<StoredTensor> {
        let num_values = shape.iter().product::<usize>();
        let (num_blocks, num_bytes) = (num_values.div_ceil(BLOCK_LEN), num_values.div_ceil(2));
        vec![
            StoredTensor::floats(format!("{name}.{ABSMAX}"), ABSMAX, &[num_blocks]),
            StoredTensor::floats(format!("{name}.{TABLE}"), TABLE, &[16]),
            StoredTensor::values(name, "U8", &[num_bytes, 1], num_bytes),
            StoredTensor::text(self.state_name(name), self.state_of(shape)),
        ]
    }
}

impl FourBit {
    /// The JSON of a weight of `shape`, filled up with blanks so that what follows it stays aligned.
    fn state_of(&self, shape: &[usize]) -> String {
        let mut state = serde_json::json!({
            "quant_type": self.name,
            "blocksize": BLOCK_LEN,
            "dtype": "float32",
            "shape": shape,
        })
        .to_string();
        while !state.len().is_multiple_of(8) {
            state.push(' ');
        }
        state
    }

    /// The code whose value is nearest to `ratio`.
    fn nearest(&self, ratio: f32) -> u8 {
        let distance = |code: &u8| (self.table[usize::from(*code)] - ratio).abs();
        let codes = 0_u8..16;
        codes
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .expect("there are sixteen")
    }
}

/// That the weight `name`, if it has scales and a table as weights of this kind have, has a state of one of the types.
fn expect_some_state(name: &str, file: &dyn TensorFile) -> Result<(), QuantError> {
    let mut tensors = [ABSMAX, TABLE].into_iter();
    let has_scales = tensors.all(|part| file.head(&format!("{name}.{part}")).is_some());
    let has_state = |format: &FourBit| file.head(&format.state_name(name)).is_some();
    if !has_scales || [&NF4, &FP4].into_iter().any(has_state) {
        return Ok(());
    }
    Err(bad_description(
        "4-bit bitsandbytes",
        &format!("{name}{STATE}*"),
        "is missing".into(),
        "JSON with the weight's type, block size and shape",
    ))
}

/// Writes the codes from number `start` on.
fn unpack(packed: &[u8], start: usize, codes: &mut [u8]) {
    let (mut codes, mut at) = (codes, start);
    if at % 2 == 1 {
        codes[0] = packed[at / 2] & 15;
        (codes, at) = (&mut codes[1..], at + 1);
    }
    let bytes = &packed[at / 2..];
    let (pairs, last) = codes.as_chunks_mut::<2>();
    let (runs, bytes_left) = bytes[..pairs.len()].as_chunks::<16>();
    let (pair_runs, pairs_left) = pairs.as_chunks_mut::<16>();
    for (pairs, bytes) in pair_runs.iter_mut().zip(runs) {
        // A local array cannot overlap the bytes, so the loop vectorises.
        let mut local = [[0; 2]; 16];
        for l in 0..16 {
            local[l] = [bytes[l] >> 4, bytes[l] & 15];
        }
        *pairs = local;
    }
    for (pair, byte) in pairs_left.iter_mut().zip(bytes_left) {
        *pair = [byte >> 4, byte & 15];
    }
    if let [last] = last {
        *last = bytes[pairs.len()] >> 4;
    }
}

fn largest(values: &[f32]) -> f32 {
    values
        .iter()
        .fold(0.0, |max: f32, value| max.max(value.abs()))
}

/// Values that share a scale in what is written here: bitsandbytes' default.
const BLOCK_LEN: usize = 64;
const BLOCK_LEN_U32: u32 = 64;
/// Values that are decoded at once: few enough for the first-level cache, an even number.
const RUN_LEN: usize = 2048;
