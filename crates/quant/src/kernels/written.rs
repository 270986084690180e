//! Large outputs that threads write chunk by chunk, without a first pass of zeros.

use rayon::{
    iter::{IndexedParallelIterator, ParallelIterator},
    slice::ParallelSliceMut,
};

/// `len` values, of which `write` copies chunk `index` into place from a buffer of its thread.
///
/// Memory fresh from the system costs a fault per page at its first touch. Zeroing it first would have one thread
/// pay for all of them; here each thread pays for its own chunks.
///
/// # Panics
/// If `chunk_len` is zero, or `write` answers a slice of another length than the one it was asked for.
pub(crate) fn written_by_chunks<T: Copy + Send, B>(
    len: usize,
    chunk_len: usize,
    buffer: impl Fn() -> B + Sync + Send,
    write: impl Fn(&mut B, usize, usize) -> &[T] + Sync + Send,
) -> Vec<T> {
    let mut values = Box::new_uninit_slice(len);
    let chunks = values.par_chunks_mut(chunk_len).enumerate();
    chunks.for_each_init(buffer, |buffer, (index, chunk)| {
        chunk.write_copy_of_slice(write(buffer, index, chunk.len()));
    });
    #[expect(
        unsafe_code,
        reason = "the compiler does not see that all chunks were written"
    )]
    // SAFETY: the chunks are the whole of `values`, and `write_copy_of_slice` fills the chunk or panics.
    let values = unsafe { values.assume_init() };
    values.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_the_one_of_its_chunk() {
        for (len, chunk_len) in [(0, 4), (1, 4), (8, 4), (10, 4), (3, 100)] {
            let found = written_by_chunks(
                len,
                chunk_len,
                || vec![0; chunk_len],
                |buffer, index, num| {
                    for (offset, value) in buffer[..num].iter_mut().enumerate() {
                        *value = index * chunk_len + offset;
                    }
                    &buffer[..num]
                },
            );
            assert_eq!(found, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    #[should_panic(expected = "length")]
    fn a_chunk_of_another_length_is_not_taken() {
        let _ = written_by_chunks(10, 4, || [0; 4], |buffer, _, _| &buffer[..]);
    }
}
