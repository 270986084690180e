//! One value a byte.

use pulp::{Arch, Simd, WithSimd};

use crate::kernels::{
    InputRows, OutputTile,
    dot_groups::{WeightGroups, dot_groups},
};

/// Writes `widen` of every byte, in the widest instructions the machine has; mark it `#[inline(always)]`.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn widen_bytes(bytes: &[u8], widen: impl Fn(u8) -> f32, values: &mut [f32]) {
    assert_eq!(bytes.len(), values.len(), "a value a byte");
    Arch::new().dispatch(Widen {
        bytes,
        widen,
        values,
    });
}

/// The product of a weight row whose values are `widen` of its bytes with every input row, down the one column of `output`.
///
/// # Panics
/// If the row is no multiple of [`STEP_LEN`].
pub(crate) fn dot_bytes(
    bytes: &[u8],
    widen: impl Fn(u8) -> f32,
    input: InputRows<'_>,
    output: &mut OutputTile<'_>,
) {
    let (steps, rest) = bytes.as_chunks::<STEP_LEN>();
    assert!(rest.is_empty(), "the row is no whole number of steps");
    dot_groups::<_, STEP_LEN>(&Bytes { steps, widen }, input, output);
}

struct Bytes<'a, F> {
    steps: &'a [[u8; STEP_LEN]],
    widen: F,
}

impl<F: Fn(u8) -> f32> WeightGroups<STEP_LEN> for Bytes<'_, F> {
    fn num_groups(&self) -> usize {
        self.steps.len()
    }

    #[inline(always)]
    fn group<S: Simd>(&self, index: usize) -> [f32; STEP_LEN] {
        let mut values = [0.0; STEP_LEN];
        for (value, byte) in values.iter_mut().zip(&self.steps[index]) {
            *value = (self.widen)(*byte);
        }
        values
    }
}

struct Widen<'a, F> {
    bytes: &'a [u8],
    widen: F,
    values: &'a mut [f32],
}

impl<F: Fn(u8) -> f32> WithSimd for Widen<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let (steps, rest) = self.bytes.as_chunks::<STEP_LEN>();
        let (values, values_left) = self.values.as_chunks_mut::<STEP_LEN>();
        for (bytes, values) in steps.iter().zip(values) {
            // A local array cannot overlap the bytes, so the loop vectorises.
            let mut local = [0.0; STEP_LEN];
            for l in 0..STEP_LEN {
                local[l] = (self.widen)(bytes[l]);
            }
            *values = local;
        }
        for (byte, value) in rest.iter().zip(values_left) {
            *value = (self.widen)(*byte);
        }
    }
}

/// Bytes that are widened at once.
pub(crate) const STEP_LEN: usize = 32;
