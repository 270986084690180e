//! Scales and zero points, which may be packed themselves.
//!
//! `scale = number`, or `number · scale_2`, `number · scale_2 + scale_zero_point` with one rounding, or where they are
//! places in a list `scale_2[number]`; zero points likewise (`dequantize_scales` of sdnq 0.2.8).

use std::ops::Range;

use crate::{Part, Parts, QuantError, expect_part, kernels::Scalars};

/// Names of the parts that scales or zero points are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) numbers: &'static str,
    pub(super) scale: &'static str,
    pub(super) zero_point: &'static str,
}

pub(super) const SCALE: Names = Names {
    numbers: "scale",
    scale: "scale_2",
    zero_point: "scale_zero_point",
};

pub(super) const ZERO_POINT: Names = Names {
    numbers: "zero_point",
    scale: "zero_point_scale",
    zero_point: "zero_point_2",
};

/// Numbers, one or several a row.
#[derive(Clone, Debug)]
pub(super) struct Scales<'a> {
    numbers: Scalars<'a>,
    packing: Packing<'a>,
}

#[derive(Clone, Debug)]
enum Packing<'a> {
    None,
    Scaled { scale: f32, zero_point: Option<f32> },
    List(Scalars<'a>),
}

impl<'a> Scales<'a> {
    /// `None` where there are none.
    pub(super) fn new(names: Names, parts: &'a Parts, is_list: bool) -> Option<Self> {
        let numbers = parts.get(names.numbers)?.scalars()?;
        let packing = match parts.get(names.scale).and_then(Part::scalars) {
            None => Packing::None,
            Some(scales) if is_list => Packing::List(scales),
            Some(scales) => Packing::Scaled {
                scale: scales.get(0),
                zero_point: parts
                    .get(names.zero_point)
                    .and_then(Part::scalars)
                    .map(|zero_points| zero_points.get(0)),
            },
        };
        Some(Self { numbers, packing })
    }

    /// Numbers `range`, in place of what `values` held.
    pub(super) fn read(&self, range: Range<usize>, values: &mut Vec<f32>) {
        let numbers = range.map(|index| self.numbers.get(index));
        values.clear();
        match &self.packing {
            Packing::None => values.extend(numbers),
            Packing::Scaled {
                scale,
                zero_point: None,
            } => values.extend(numbers.map(|number| number * scale)),
            Packing::Scaled {
                scale,
                zero_point: Some(zero_point),
            } => values.extend(numbers.map(|number| number.mul_add(*scale, *zero_point))),
            Packing::List(list) => values.extend(numbers.map(|number| list.get(place(number)))),
        }
    }
}

/// Checks the parts of `len` scales or zero points.
pub(super) fn validate(
    format: &'static str,
    names: Names,
    parts: &Parts,
    (len, is_list): (usize, bool),
) -> Result<(), QuantError> {
    expect_numbers(format, parts, names.numbers, len)?;
    if parts.get(names.scale).is_none() {
        return expect_plain(format, names, parts);
    }
    if is_list {
        return expect_list(format, names, parts);
    }
    expect_numbers(format, parts, names.scale, 1)?;
    match parts.get(names.zero_point) {
        Some(_) => expect_numbers(format, parts, names.zero_point, 1),
        None => Ok(()),
    }
}

/// Checks that the part `part` has `len` numbers of a known type.
pub(super) fn expect_numbers(
    format: &'static str,
    parts: &Parts,
    part: &'static str,
    len: usize,
) -> Result<(), QuantError> {
    let missing = QuantError::MissingPart { format, part };
    let found = parts.get(part).ok_or(missing)?;
    let Some(numbers) = found.scalars() else {
        return Err(QuantError::BadPart {
            format,
            part,
            found: format!("is of type `{}`", found.tag),
            expected: "a type of numbers".into(),
        });
    };
    if numbers.len() != len {
        return Err(QuantError::BadPart {
            format,
            part,
            found: format!("has {} numbers", numbers.len()),
            expected: format!("{len} numbers"),
        });
    }
    let whole = found.bytes.len().checked_div(len).unwrap_or(0);
    expect_part(format, parts, part, whole * len)
}

/// Numbers that nothing scales are no whole numbers, and have no zero point.
fn expect_plain(format: &'static str, names: Names, parts: &Parts) -> Result<(), QuantError> {
    let tag = parts.get(names.numbers).map_or("", |part| &part.tag);
    if ["U8", "I8"].contains(&tag) || parts.get(names.zero_point).is_some() {
        let part = names.scale;
        return Err(QuantError::MissingPart { format, part });
    }
    Ok(())
}

/// Every code is the place of a number.
fn expect_list(format: &'static str, names: Names, parts: &Parts) -> Result<(), QuantError> {
    expect_numbers(format, parts, names.scale, NUM_PLACES)?;
    let tag = parts.get(names.numbers).map_or("", |part| &part.tag);
    if tag == "U8" {
        return Ok(());
    }
    Err(QuantError::BadPart {
        format,
        part: names.numbers,
        found: format!("is of type `{tag}`"),
        expected: "`U8`, places in a list".into(),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a byte, in f32"
)]
fn place(number: f32) -> usize {
    number as usize
}

/// Numbers of a list for scales, which are bytes.
const NUM_PLACES: usize = 256;
