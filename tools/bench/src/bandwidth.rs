//! How fast memory can be read: the sum of an array larger than any cache.

use std::hint::black_box;

use rayon::{iter::ParallelIterator, slice::ParallelSlice};

/// Reads all of `bytes` once, with every thread.
pub(crate) fn read_all(bytes: &[u8]) {
    let sum = bytes
        .par_chunks(1 << 18)
        .map(sum)
        .reduce(|| 0, u64::wrapping_add);
    black_box(sum);
}

fn sum(bytes: &[u8]) -> u64 {
    let mut lanes = [0u64; 16];
    for step in bytes.as_chunks::<128>().0 {
        for (lane, bytes) in lanes.iter_mut().zip(step.as_chunks::<8>().0) {
            *lane = lane.wrapping_add(u64::from_le_bytes(*bytes));
        }
    }
    lanes.into_iter().fold(0, u64::wrapping_add)
}
