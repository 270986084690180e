//! The JSON that says how a 4-bit weight of bitsandbytes is packed: the tensor `<weight>.quant_state.bitsandbytes__<type>`.

use serde::Deserialize;

use crate::{QuantError, TensorFile, num_values};

/// What the JSON of a weight says.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct QuantState {
    /// `nf4` or `fp4`.
    quant_type: String,
    /// Values that share a scale.
    pub(super) blocksize: u32,
    /// Logical shape of the weight.
    pub(super) shape: Vec<usize>,
    /// Scales that share a scale of their own, where scales are quantized, too.
    pub(super) nested_blocksize: Option<u32>,
    /// What was taken off the scales before they were quantized.
    pub(super) nested_offset: Option<f32>,
    /// The type of the scales' own scales.
    nested_dtype: Option<String>,
}

impl QuantState {
    /// Reads the JSON in the tensor `place` of `file`, which describes a weight in `format`.
    pub(super) fn read(
        format: &'static str,
        place: &str,
        file: &dyn TensorFile,
    ) -> Result<Self, QuantError> {
        let wrong = |found: String, expected: &str| bad_description(format, place, found, expected);
        let has_length = |len: usize| match len {
            0..=MAX_BYTES => Ok(()),
            _ => Err(wrong(
                format!("has more than {MAX_BYTES} bytes"),
                "a short JSON object",
            )),
        };
        let shape = file.head(place).map_or(&[][..], |head| head.shape);
        let len = shape
            .iter()
            .fold(1_usize, |len, size| len.saturating_mul(*size));
        has_length(len)?;
        let bytes = file.read(place).map_err(|source| QuantError::Read {
            format,
            tensor: place.into(),
            source,
        })?;
        has_length(bytes.len())?;
        let state: Self = serde_json::from_slice(&bytes).map_err(|error| {
            wrong(
                format!("cannot be read ({error})"),
                "a JSON object with quant_type, blocksize and shape",
            )
        })?;
        state.check(format, place)?;
        Ok(state)
    }

    /// That a weight in `format` can be so.
    fn check(&self, format: &'static str, place: &str) -> Result<(), QuantError> {
        let wrong =
            |found: String, expected: &str| Err(bad_description(format, place, found, expected));
        if self.quant_type != format {
            let found = format!("has the quant_type {:?}", self.quant_type);
            return wrong(found, "the one in its name");
        }
        let is_block = |len: u32| len.is_power_of_two() && (16..=1 << 16).contains(&len);
        let power = "a power of two from 16 to 65536";
        if !is_block(self.blocksize) {
            return wrong(format!("has the blocksize {}", self.blocksize), power);
        }
        if let Some(len) = self.nested_blocksize.filter(|len| !is_block(*len)) {
            return wrong(format!("has the nested_blocksize {len}"), power);
        }
        if self.nested_blocksize.is_some() != self.nested_offset.is_some() {
            let found = "has one of nested_blocksize and nested_offset".into();
            return wrong(found, "both or neither");
        }
        if self.nested_offset.is_some_and(|offset| !offset.is_finite()) {
            return wrong("has a nested_offset beyond f32".into(), "a finite number");
        }
        if let Some(dtype) = self
            .nested_dtype
            .as_ref()
            .filter(|dtype| *dtype != "float32")
        {
            return wrong(format!("has the nested_dtype {dtype:?}"), "float32");
        }
        if !self.fits_memory(format) {
            let found = format!("has the shape {:?}", self.shape);
            return wrong(found, "one to eight sizes of a matrix that fits memory");
        }
        Ok(())
    }

    /// Whether memory can hold the weight as `[d_output, d_input]`.
    fn fits_memory(&self, format: &'static str) -> bool {
        let Some((d_output, others)) = self.shape.split_first() else {
            return false;
        };
        let mut sizes = others.iter();
        let d_input = sizes.try_fold(1_usize, |product, size| product.checked_mul(*size));
        let matrix = d_input.map(|d_input| [*d_output, d_input]);
        others.len() < MAX_AXES && matrix.is_some_and(|matrix| num_values(format, matrix).is_ok())
    }
}

/// That the tensor `place`, of a weight in `format`, is not as it should be.
pub(super) fn bad_description(
    format: &'static str,
    place: &str,
    found: String,
    expected: &str,
) -> QuantError {
    QuantError::BadDescription {
        format,
        place: place.into(),
        found,
        expected: expected.into(),
    }
}

const MAX_BYTES: usize = 1 << 16;
const MAX_AXES: usize = 8;
