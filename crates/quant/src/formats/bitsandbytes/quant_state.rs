//! The JSON that says how a 4-bit weight of bitsandbytes is packed: the tensor `<weight>.quant_state.bitsandbytes__<type>`.

use serde::Deserialize;

use crate::{QuantError, num_values};

/// What the JSON of a weight says.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct QuantState {
    /// Values that share a scale.
    pub(super) blocksize: u32,
    /// Logical shape of the weight.
    pub(super) shape: Vec<usize>,
    /// Scales that share a scale of their own, where scales are quantized, too.
    pub(super) nested_blocksize: Option<u32>,
    /// What was taken off the scales before they were quantized.
    pub(super) nested_offset: Option<f32>,
}

impl QuantState {
    /// Reads the JSON `bytes` of the tensor `place`.
    pub(super) fn read(
        format: &'static str,
        place: &str,
        bytes: &[u8],
    ) -> Result<Self, QuantError> {
        let wrong = |found: String, expected: &str| QuantError::BadDescription {
            format,
            place: place.into(),
            found,
            expected: expected.into(),
        };
        if bytes.len() > MAX_BYTES {
            let found = format!("has {} bytes", bytes.len());
            return Err(wrong(found, "a short JSON object"));
        }
        let state: Self = serde_json::from_slice(bytes).map_err(|error| {
            wrong(
                format!("cannot be read ({error})"),
                "a JSON object with blocksize and shape",
            )
        })?;
        let is_block = |len: u32| len.is_power_of_two() && (16..=1 << 16).contains(&len);
        if !is_block(state.blocksize) {
            let found = format!("has the blocksize {}", state.blocksize);
            return Err(wrong(found, "a power of two from 16 to 65536"));
        }
        if let Some(len) = state.nested_blocksize.filter(|len| !is_block(*len)) {
            let found = format!("has the nested_blocksize {len}");
            return Err(wrong(found, "a power of two from 16 to 65536"));
        }
        if state.shape.is_empty() || state.shape.len() > MAX_AXES {
            let found = format!("has the shape {:?}", state.shape);
            return Err(wrong(found, "one to eight sizes"));
        }
        state.matrix(format)?;
        Ok(state)
    }

    /// `[d_output, d_input]`.
    fn matrix(&self, format: &'static str) -> Result<[usize; 2], QuantError> {
        let too_large = QuantError::Overflow {
            format,
            shape: [usize::MAX; 2],
        };
        let mut others = self.shape[1..].iter();
        let d_input = others.try_fold(1_usize, |product, size| product.checked_mul(*size));
        let matrix = [self.shape[0], d_input.ok_or(too_large)?];
        num_values(format, matrix)?;
        Ok(matrix)
    }
}

const MAX_BYTES: usize = 1 << 16;
const MAX_AXES: usize = 8;
