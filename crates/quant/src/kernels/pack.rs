//! Packing values block by block.

use rayon::{
    iter::{IndexedParallelIterator, ParallelIterator},
    slice::{ParallelSlice, ParallelSliceMut},
};

use crate::Parts;

/// A format whose blocks of `LEN` values are written as `BYTES` bytes, each block for itself.
pub trait Pack<const LEN: usize, const BYTES: usize> {
    /// Writes the block nearest to `values`.
    fn pack(values: &[f32; LEN], bytes: &mut [u8; BYTES]);
}

/// The blocks of `values`, one after another, as the one part of a weight.
///
/// # Panics
/// If the values are not a whole number of blocks.
#[must_use]
pub fn packed_blocks<F: Pack<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    values: &[f32],
) -> Parts {
    let (blocks, rest) = values.as_chunks::<LEN>();
    assert!(rest.is_empty(), "the values are no whole number of blocks");
    let mut packed = vec![0; blocks.len() * BYTES];
    packed
        .as_chunks_mut::<BYTES>()
        .0
        .par_chunks_mut(BLOCKS_A_TASK)
        .zip(blocks.par_chunks(BLOCKS_A_TASK))
        .for_each(|(packed, blocks)| {
            for (bytes, values) in packed.iter_mut().zip(blocks) {
                F::pack(values, bytes);
            }
        });
    Parts::values(packed.into())
}

/// Enough work to be worth handing to another thread.
const BLOCKS_A_TASK: usize = 256;
