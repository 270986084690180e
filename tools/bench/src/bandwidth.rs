//! How fast memory can be read: the sum of an array larger than any cache, in the widest instructions.

use std::{array::from_fn, hint::black_box};

use pulp::{Arch, Simd, WithSimd};
use rayon::{iter::ParallelIterator, slice::ParallelSlice};

/// Reads all of `bytes` once, with every thread.
pub(crate) fn read_all(bytes: &[u8]) {
    let (_, values, _) = pulp::bytemuck::pod_align_to::<u8, f32>(bytes);
    let sum: f32 = values
        .par_chunks(CHUNK_LEN)
        .map(|values| Arch::new().dispatch(Sum(values)))
        .sum();
    black_box(sum);
}

struct Sum<'a>(&'a [f32]);

impl WithSimd for Sum<'_> {
    type Output = f32;

    /// Reads `STREAMS` parts at the same time, so that several prefetchers work.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (vectors, _) = S::as_simd_f32s(self.0);
        let len = vectors.len() / STREAMS;
        let streams: [_; STREAMS] =
            from_fn(|stream| vectors[stream * len..][..len].as_chunks::<2>().0);
        let mut sums = [[simd.splat_f32s(0.0); 2]; STREAMS];
        for step in 0..len / 2 {
            for (sums, stream) in sums.iter_mut().zip(streams) {
                for (sum, vector) in sums.iter_mut().zip(stream[step]) {
                    *sum = simd.add_f32s(*sum, vector);
                }
            }
        }
        let sums = sums.as_flattened().iter();
        simd.reduce_sum_f32s(sums.fold(simd.splat_f32s(0.0), |a, b| simd.add_f32s(a, *b)))
    }
}

/// Values a thread reads at a time: 512 KiB.
const CHUNK_LEN: usize = 1 << 17;
const STREAMS: usize = 4;
