//! The scales of 4-bit weights: one a block of values, as numbers or as codes with scales of their own.

use bytes::Bytes;

use crate::{Part, Parts, kernels::Scalars};

pub(super) const ABSMAX: &str = "absmax";
pub(super) const NESTED_ABSMAX: &str = "nested_absmax";
pub(super) const TABLE: &str = "quant_map";
pub(super) const NESTED_TABLE: &str = "nested_quant_map";
/// Block length and nested block length, u32, and the nested offset, f32.
pub(super) const GEOMETRY: &str = "geometry";

/// The numbers of the part [`GEOMETRY`].
pub(super) struct Geometry {
    pub(super) block_len: usize,
    pub(super) nested_len: usize,
    pub(super) offset: f32,
}

impl Geometry {
    pub(super) fn of(parts: &Parts) -> Self {
        let (words, _) = parts.bytes(GEOMETRY).as_chunks::<4>();
        let word = |index: usize| words.get(index).copied().unwrap_or_default();
        let len = |index| {
            usize::try_from(u32::from_le_bytes(word(index)))
                .unwrap_or(1)
                .max(1)
        };
        Self {
            block_len: len(0),
            nested_len: len(1),
            offset: f32::from_le_bytes(word(2)),
        }
    }
}

/// The part that holds these numbers.
pub(super) fn geometry(block_len: u32, nested: Option<(u32, f32)>) -> Part {
    let (nested_len, offset) = nested.unwrap_or((256, 0.0));
    let mut bytes = Vec::with_capacity(12);
    bytes.extend(block_len.to_le_bytes());
    bytes.extend(nested_len.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    part(GEOMETRY, "", 0, bytes.into())
}

/// A part of `len` elements.
pub(super) fn part(name: &'static str, tag: &str, len: usize, bytes: Bytes) -> Part {
    Part {
        name,
        tag: tag.into(),
        shape: vec![len],
        bytes,
    }
}

/// The scales of a weight's blocks.
pub(super) struct Scales<'a> {
    pub(super) block_len: usize,
    absmax: Scalars<'a>,
    /// Table, scales of scales, and how many share one, where the scales are codes.
    nested: Option<(Scalars<'a>, Scalars<'a>, usize)>,
    offset: f32,
}

impl<'a> Scales<'a> {
    pub(super) fn of(parts: &'a Parts) -> Self {
        let Geometry {
            block_len,
            nested_len,
            offset,
        } = Geometry::of(parts);
        let scalars = |name| parts.get(name).and_then(Part::scalars);
        let absmax = parts.get(ABSMAX).expect("the parts were validated");
        let nested = (absmax.tag == "U8").then(|| {
            let table = scalars(NESTED_TABLE).expect("the parts were validated");
            let scales = scalars(NESTED_ABSMAX).expect("the parts were validated");
            (table, scales, nested_len)
        });
        Self {
            block_len,
            absmax: absmax.scalars().expect("the parts were validated"),
            nested,
            offset,
        }
    }

    /// The scale of a block.
    pub(super) fn get(&self, block: usize) -> f32 {
        let Some((table, scales, len)) = self.nested else {
            return self.absmax.get(block);
        };
        let code = usize::from(self.absmax.byte(block));
        table.get(code) * scales.get(block / len) + self.offset
    }

    /// Multiplies `values`, of which the first is number `start` of the weight, with the scales of their blocks.
    pub(super) fn multiply(&self, start: usize, values: &mut [f32]) {
        let (mut rest, mut at) = (values, start);
        while !rest.is_empty() {
            let block = at / self.block_len;
            let len = rest.len().min((block + 1) * self.block_len - at);
            let (values, after) = rest.split_at_mut(len);
            let scale = self.get(block);
            values.iter_mut().for_each(|value| *value *= scale);
            (rest, at) = (after, at + len);
        }
    }
}
