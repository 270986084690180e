//! The format: what its parts must be, and which file has what.

use crate::{
    Encode, FormatEntry, FoundWeight, Part, Parts, QuantError, QuantFormat, TensorFile,
    expect_part, kernels::WeightRows,
};

use super::{
    codes::{Codes, WIDE},
    decode::decode,
    encode::{Int8, Uint4},
    find::find,
    layout::Layout,
    number::Number,
    scales::{self, SCALE, ZERO_POINT},
    svd,
};

inventory::submit! { FormatEntry(&Sdnq) }

/// One to eight bits and a share of a scale a value.
#[derive(Debug)]
struct Sdnq;

impl QuantFormat for Sdnq {
    fn name(&self) -> &'static str {
        "sdnq"
    }

    fn find(&self, name: &str, file: &dyn TensorFile) -> Result<Option<FoundWeight>, QuantError> {
        find(&Self, name, file)
    }

    fn validate(&self, shape: [usize; 2], parts: &Parts) -> Result<(), QuantError> {
        let format = self.name();
        let layout = Layout::validated(format, shape, parts)?;
        self.validate_values(layout.number, shape, parts)?;
        let overflow = QuantError::Overflow { format, shape };
        let num_scales = layout.num_scales(shape[0]).ok_or(overflow)?;
        let scales = (num_scales, layout.has_scale_codebook);
        scales::validate(format, SCALE, parts, scales)?;
        if layout.has_zero_points() {
            scales::validate(format, ZERO_POINT, parts, scales)?;
        }
        svd::validate(format, shape, parts)
    }

    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        decode(rows, values);
    }

    #[cfg(feature = "cube")]
    fn device_words(&self, shape: [usize; 2], parts: &Parts) -> Option<crate::DeviceWords> {
        super::device::words(shape, parts)
    }

    fn encoders(&self) -> &'static [&'static dyn Encode] {
        &[&Int8(&Self), &Uint4(&Self)]
    }
}

impl Sdnq {
    fn validate_values(
        &self,
        number: Number,
        shape: [usize; 2],
        parts: &Parts,
    ) -> Result<(), QuantError> {
        let (format, part) = (self.name(), Part::VALUES);
        let missing = QuantError::MissingPart { format, part };
        let tag = parts.get(part).ok_or(missing)?.tag.as_str();
        if !number.tags().contains(&tag) {
            return Err(QuantError::BadPart {
                format,
                part,
                found: format!("is of type `{tag}`"),
                expected: format!("one of {:?}", number.tags()),
            });
        }
        let expected = Codes::num_bytes(number.bits(), tag == WIDE, shape[0] * shape[1]);
        let expected = expected.ok_or(QuantError::PartialBlock {
            format,
            shape,
            block_len: Codes::pack_len(number.bits()),
        })?;
        expect_part(format, parts, part, expected)
    }
}
