//! How a matrix's values share scales, in numbers that decoding reads.

use crate::{Part, Parts, QuantError, num_values};

use super::number::Number;

/// What cannot be told from the tensors alone; kept as a part of the weight.
///
/// A row of `d_input` values is `num_groups` groups, each of them channels of `num_positions` values: of a convolution
/// the kernel's positions, else 1. The values of a group at one position share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) number: Number,
    pub(super) num_groups: usize,
    pub(super) num_positions: usize,
    /// Values that are turned together; 1 where none are.
    pub(super) turned_len: usize,
    /// All values share one scale.
    pub(super) has_one_scale: bool,
    /// Codes are `[d_input, d_output]`.
    pub(super) is_transposed: bool,
    /// The weight is a convolution's.
    pub(super) is_conv: bool,
    /// Codes are places in a list of numbers, of which there is one where there would be a scale.
    pub(super) has_codebook: bool,
    /// Scales and zero points are places in lists of numbers too.
    pub(super) has_scale_codebook: bool,
    /// `svd_up` is `[rank, d_output]` and `svd_down` `[d_input, rank]`.
    pub(super) has_transposed_svd: bool,
}

impl Layout {
    /// Each row has one scale.
    pub(super) fn of_rows(number: Number) -> Self {
        Self {
            number,
            num_groups: 1,
            num_positions: 1,
            turned_len: 1,
            has_one_scale: false,
            is_transposed: false,
            is_conv: false,
            has_codebook: false,
            has_scale_codebook: false,
            has_transposed_svd: false,
        }
    }

    /// The part, of which the tag is the type's name.
    pub(super) fn to_part(self, type_name: &str) -> Part {
        let flags = [
            self.has_one_scale,
            self.is_transposed,
            self.is_conv,
            self.has_codebook,
            self.has_scale_codebook,
            self.has_transposed_svd,
        ];
        let numbers = [self.num_groups, self.num_positions, self.turned_len]
            .map(|number| number as u64)
            .into_iter()
            .chain(flags.map(u64::from));
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        Part {
            name: LAYOUT,
            tag: type_name.into(),
            shape: vec![NUM_FIELDS],
            bytes: bytes.into(),
        }
    }

    /// The layout of validated parts.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn of_validated(parts: &Parts) -> Self {
        Self::read(parts).expect("a validated sdnq weight has a layout")
    }

    /// The layout of a matrix `[d_output, d_input]`.
    pub(super) fn validated(
        format: &'static str,
        shape: [usize; 2],
        parts: &Parts,
    ) -> Result<Self, QuantError> {
        if parts.get(LAYOUT).is_none() {
            return Err(QuantError::MissingPart {
                format,
                part: LAYOUT,
            });
        }
        num_values(format, shape)?;
        Self::read(parts)
            .filter(|layout| layout.fits(shape[1]))
            .ok_or_else(|| QuantError::BadPart {
                format,
                part: LAYOUT,
                found: "does not describe the rows".into(),
                expected: format!("groups that divide {} values", shape[1]),
            })
    }

    /// Numbers of the part `scale` for a matrix of `d_output` rows; `None` where they cannot be counted.
    pub(super) fn num_scales(&self, d_output: usize) -> Option<usize> {
        let num_rows = if self.has_one_scale { 1 } else { d_output };
        self.row_scales().checked_mul(num_rows)
    }

    /// Numbers of the part `scale` for a row.
    pub(super) fn row_scales(&self) -> usize {
        self.num_groups * self.num_positions * self.num_levels()
    }

    /// Whether values have zero points.
    pub(super) fn has_zero_points(&self) -> bool {
        self.number.is_unsigned() && !self.has_codebook
    }

    /// Numbers of a list; 1 where there is no list.
    pub(super) fn num_levels(&self) -> usize {
        if self.has_codebook {
            1 << self.number.bits()
        } else {
            1
        }
    }

    fn read(parts: &Parts) -> Option<Self> {
        let part = parts.get(LAYOUT)?;
        let numbers = part.bytes.as_chunks().0;
        let (numbers, []): (Vec<_>, &[u8]) = (
            numbers
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes))
                .collect(),
            part.bytes.as_chunks::<8>().1,
        ) else {
            return None;
        };
        let [groups, positions, turned, flags @ ..] = numbers.as_slice() else {
            return None;
        };
        let flags: [u64; NUM_FIELDS - 3] = flags.try_into().ok()?;
        let [
            has_one_scale,
            is_transposed,
            is_conv,
            has_codebook,
            has_scale_codebook,
            has_transposed_svd,
        ] = flags.map(|flag| flag == 1);
        let layout = Self {
            number: Number::from_name(&part.tag)?,
            num_groups: usize::try_from(*groups).ok()?,
            num_positions: usize::try_from(*positions).ok()?,
            turned_len: usize::try_from(*turned).ok()?,
            has_one_scale,
            is_transposed,
            is_conv,
            has_codebook,
            has_scale_codebook,
            has_transposed_svd,
        };
        flags.iter().all(|flag| *flag <= 1).then_some(layout)
    }

    fn fits(&self, d_input: usize) -> bool {
        let scaled_len = self.num_groups.checked_mul(self.num_positions);
        let has_groups = scaled_len.is_some_and(|len| len > 0 && d_input.is_multiple_of(len));
        let is_counted = scaled_len.is_some_and(|len| len.checked_mul(self.num_levels()).is_some());
        let is_turned =
            self.turned_len.is_power_of_two() && d_input.is_multiple_of(self.turned_len);
        let has_one_group = scaled_len == Some(1) || !self.has_one_scale;
        // A byte of a transposed code is a code.
        let is_readable = !self.is_transposed || self.number.bits() == 8;
        let has_list = !self.has_codebook || matches!(self.number, Number::Uint { .. });
        has_groups && is_counted && is_turned && has_one_group && is_readable && has_list
    }
}

/// The part's name.
pub(super) const LAYOUT: &str = "layout";

/// Numbers of the part.
const NUM_FIELDS: usize = 9;
