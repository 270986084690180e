//! Formats whose values are small integers on a line for each group: `value = scale · code + start`.
//!
//! Decoding goes in two passes over a few kilobytes: bits to codes of a byte, which is the format's own, and codes to values,
//! which is the same for all. Each alone is a loop that compilers turn into vector instructions; both in one often are not.

use std::marker::PhantomData;

use pulp::{Arch, Simd, WithSimd};

use crate::{
    Part, QuantFormat,
    kernels::{
        InputRows, OutputTile, WeightRows, add_product, dot_decoded,
        dot_groups::{WeightGroups, dot_groups},
        lookup::look_up_bytes,
    },
};

/// A format of equal blocks of `LEN` values in `BYTES` bytes, with `GROUPS` groups of 16 or 32 values each.
pub trait Coded<const LEN: usize, const BYTES: usize, const GROUPS: usize>: QuantFormat {
    /// Whether groups have a start.
    const HAS_STARTS: bool = false;

    /// Where codes of four bits choose among integers: these.
    const TABLE: Option<[i8; 16]> = None;

    /// The codes of a block; from 0 to 15 where there is a [`TABLE`](Self::TABLE). Mark it `#[inline(always)]` and write it as plain loops over arrays: it is compiled once per
    /// instruction set.
    fn codes(bytes: &[u8; BYTES], codes: &mut [i8; LEN]);

    /// The scales of a block's groups and, where it has any, their starts.
    fn lines(bytes: &[u8; BYTES], scales: &mut [f32; GROUPS], starts: &mut [f32; GROUPS]);
}

/// Decodes rows of a format of codes; those that begin or end inside a block with the whole of it.
///
/// # Panics
/// If a group is of neither 16 nor 32 values.
pub fn decode_coded<F, const LEN: usize, const BYTES: usize, const GROUPS: usize>(
    _format: &F,
    rows: &WeightRows<'_>,
    values: &mut [f32],
) where
    F: Coded<LEN, BYTES, GROUPS>,
{
    let wanted = rows.values();
    let (blocks, _) = rows.parts().bytes(Part::VALUES).as_chunks::<BYTES>();
    let blocks = &blocks[wanted.start / LEN..wanted.end.div_ceil(LEN)];
    let mut codes = Codes::<F, LEN, BYTES, GROUPS>::of(RUN_LEN.div_ceil(LEN));
    let mut skipped = wanted.start % LEN;
    let mut rest = values;
    let mut edge = Vec::new();
    for blocks in blocks.chunks(codes.num_blocks()) {
        codes.read(blocks);
        let num_values = blocks.len() * LEN;
        let len = rest.len().min(num_values - skipped);
        let (values, after) = rest.split_at_mut(len);
        if len == num_values {
            codes.expand(values);
        } else {
            edge.resize(num_values, 0.0);
            codes.expand(&mut edge);
            values.copy_from_slice(&edge[skipped..][..len]);
        }
        (rest, skipped) = (after, 0);
    }
}

/// The product of a format of codes: a weight row's codes are read once for up to eight input rows.
///
/// # Panics
/// If a group is of neither 16 nor 32 values.
pub fn dot_coded<F, const LEN: usize, const BYTES: usize, const GROUPS: usize>(
    format: &F,
    rows: &WeightRows<'_>,
    input: InputRows<'_>,
    output: &mut OutputTile<'_>,
) where
    F: Coded<LEN, BYTES, GROUPS>,
{
    if !rows.d_input().is_multiple_of(LEN) {
        // Rows begin inside blocks.
        let decode = |row: &WeightRows<'_>, values: &mut [f32]| format.decode_rows(row, values);
        return dot_decoded(decode, rows, input, output);
    }
    let blocks_a_row = rows.d_input() / LEN;
    let wanted = rows.values();
    let (blocks, _) = rows.parts().bytes(Part::VALUES).as_chunks::<BYTES>();
    let blocks = &blocks[wanted.start / LEN..wanted.end / LEN];
    let mut codes = Codes::<F, LEN, BYTES, GROUPS>::of(blocks_a_row);
    for (column, blocks) in blocks.chunks(blocks_a_row).enumerate() {
        codes.read(blocks);
        codes.dot(input, &mut output.narrow(column..column + 1));
    }
}

/// Some blocks as codes.
struct Codes<F, const LEN: usize, const BYTES: usize, const GROUPS: usize> {
    codes: Vec<[i8; LEN]>,
    scales: Vec<[f32; GROUPS]>,
    starts: Vec<[f32; GROUPS]>,
    format: PhantomData<F>,
}

impl<F, const LEN: usize, const BYTES: usize, const GROUPS: usize> Codes<F, LEN, BYTES, GROUPS>
where
    F: Coded<LEN, BYTES, GROUPS>,
{
    fn of(num_blocks: usize) -> Self {
        Self {
            codes: vec![[0; LEN]; num_blocks],
            scales: vec![[0.0; GROUPS]; num_blocks],
            starts: vec![[0.0; GROUPS]; num_blocks],
            format: PhantomData,
        }
    }

    fn num_blocks(&self) -> usize {
        self.codes.len()
    }

    fn read(&mut self, blocks: &[[u8; BYTES]]) {
        Arch::new().dispatch(Read {
            blocks,
            codes: self,
        });
        if let Some(table) = F::TABLE {
            look_up_bytes(&table, self.codes[..blocks.len()].as_flattened_mut());
        }
    }

    fn lines(&self) -> Lines<'_> {
        Lines {
            codes: self.codes.as_flattened(),
            scales: self.scales.as_flattened(),
            starts: F::HAS_STARTS.then_some(self.starts.as_flattened()),
        }
    }

    fn expand(&self, values: &mut [f32]) {
        let lines = self.lines();
        match LEN / GROUPS {
            16 => Arch::new().dispatch(Expand::<16> { lines, values }),
            32 => Arch::new().dispatch(Expand::<32> { lines, values }),
            len => panic!("a group has {len} values"),
        }
    }

    /// Writes the one column of `output`.
    fn dot(&self, input: InputRows<'_>, output: &mut OutputTile<'_>) {
        let lines = self.lines();
        match LEN / GROUPS {
            16 => dot_groups::<_, 16>(&lines, input, output),
            32 => dot_groups::<_, 32>(&lines, input, output),
            len => panic!("a group has {len} values"),
        }
    }
}

struct Read<'a, F, const LEN: usize, const BYTES: usize, const GROUPS: usize> {
    blocks: &'a [[u8; BYTES]],
    codes: &'a mut Codes<F, LEN, BYTES, GROUPS>,
}

impl<F, const LEN: usize, const BYTES: usize, const GROUPS: usize> WithSimd
    for Read<'_, F, LEN, BYTES, GROUPS>
where
    F: Coded<LEN, BYTES, GROUPS>,
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Codes {
            codes,
            scales,
            starts,
            ..
        } = self.codes;
        // Local arrays cannot overlap the bytes, so the loops inside vectorise.
        for (block, codes) in self.blocks.iter().zip(codes) {
            let mut local = [0; LEN];
            F::codes(block, &mut local);
            *codes = local;
        }
        for ((block, scales), starts) in self.blocks.iter().zip(scales).zip(starts) {
            let (mut local_scales, mut local_starts) = ([0.0; GROUPS], [0.0; GROUPS]);
            F::lines(block, &mut local_scales, &mut local_starts);
            (*scales, *starts) = (local_scales, local_starts);
        }
    }
}

/// Codes in groups, each on its line.
#[derive(Clone, Copy)]
struct Lines<'a> {
    codes: &'a [i8],
    /// One a group.
    scales: &'a [f32],
    /// One a group, where groups have starts.
    starts: Option<&'a [f32]>,
}

struct Expand<'a, const GROUP_LEN: usize> {
    lines: Lines<'a>,
    values: &'a mut [f32],
}

impl<const GROUP_LEN: usize> WithSimd for Expand<'_, GROUP_LEN> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let (codes, _) = self.lines.codes.as_chunks::<GROUP_LEN>();
        let (values, _) = self.values.as_chunks_mut::<GROUP_LEN>();
        let groups = values.iter_mut().zip(codes).zip(self.lines.scales);
        match self.lines.starts {
            // The product alone, so that a zero keeps its sign. Local arrays, as above.
            None => {
                for ((values, codes), scale) in groups {
                    let mut local = [0.0; GROUP_LEN];
                    for l in 0..GROUP_LEN {
                        local[l] = scale * f32::from(codes[l]);
                    }
                    *values = local;
                }
            }
            Some(starts) => {
                for (((values, codes), scale), start) in groups.zip(starts) {
                    let mut local = [0.0; GROUP_LEN];
                    for l in 0..GROUP_LEN {
                        local[l] = scale * f32::from(codes[l]) + start;
                    }
                    *values = local;
                }
            }
        }
    }
}

impl<const GROUP_LEN: usize> WeightGroups<GROUP_LEN> for Lines<'_> {
    fn num_groups(&self) -> usize {
        self.codes.len() / GROUP_LEN
    }

    #[inline(always)]
    fn group<S: Simd>(&self, index: usize) -> [f32; GROUP_LEN] {
        let (codes, _) = self.codes.as_chunks::<GROUP_LEN>();
        let codes = &codes[index];
        let scale = self.scales[index];
        let start = self.starts.map_or(0.0, |starts| starts[index]);
        let mut weight = [0.0; GROUP_LEN];
        for l in 0..GROUP_LEN {
            weight[l] = add_product::<S>(f32::from(codes[l]), scale, start);
        }
        weight
    }
}

/// Values whose codes are read at once: they stay in the first-level cache.
const RUN_LEN: usize = 2048;
