//! The inner loop of a format whose rows are equal steps of bytes, compiled for every instruction set.

use pulp::{Arch, Simd, WithSimd};

use crate::{QuantFormat, kernels::WeightRows};

/// A format that decodes `LEN` values at a time, from `BYTES` bytes.
///
/// `LEN` is a multiple of 32 and of the block length. What is left of a row after whole steps goes through
/// [`QuantFormat::decode`].
pub trait Unpack<const LEN: usize, const BYTES: usize>: QuantFormat {
    /// Decodes one step. Mark it `#[inline(always)]` and write it as plain loops over arrays: it is compiled
    /// once per instruction set, inside the kernels.
    fn unpack(bytes: &[u8; BYTES], values: &mut [f32; LEN]);

    /// Decodes one step up to a factor, and returns that factor: products are summed before they are scaled.
    ///
    /// Override it where a step is one block with a scale.
    #[must_use]
    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; BYTES], values: &mut [f32; LEN]) -> f32 {
        Self::unpack(bytes, values);
        1.0
    }
}

/// Decodes rows by the format's own inner loop, in the widest instructions the machine has.
pub fn decode_packed<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    format: &F,
    rows: &WeightRows<'_>,
    values: &mut [f32],
) {
    let bytes = rows.blocks([format.block_len(), format.block_bytes()]);
    Arch::new().dispatch(Decode::<F, LEN, BYTES> {
        format,
        bytes,
        values,
    });
}

/// The f32 of the same value as the binary16 number `bits`; branch-free, so that loops over it vectorise.
///
/// Sign, exponent and mantissa are shifted into place and scaled by 2¹¹² = 2^(127 − 15), which is exact also
/// for subnormals; infinities and NaN, by then the only values from 2¹⁶ on, get the exponent of f32.
#[must_use]
#[inline(always)]
pub fn widen_f16(bits: u16) -> f32 {
    let shifted = (i32::from(bits.cast_signed()) << 13).cast_unsigned() & 0x8fff_e000;
    let value = f32::from_bits(shifted) * f32::from_bits((127 + 112) << 23);
    if value.abs() < 65_536.0 {
        value
    } else {
        f32::from_bits(value.to_bits() | 0x7f80_0000)
    }
}

struct Decode<'a, F, const LEN: usize, const BYTES: usize> {
    format: &'a F,
    bytes: &'a [u8],
    values: &'a mut [f32],
}

impl<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize> WithSimd
    for Decode<'_, F, LEN, BYTES>
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let (steps, tail) = self.bytes.as_chunks::<BYTES>();
        let (values, tail_values) = self.values.as_chunks_mut::<LEN>();
        for (bytes, values) in steps.iter().zip(values) {
            // A local array cannot overlap `bytes`, so the loops inside vectorise.
            let mut step = [0.0; LEN];
            F::unpack(bytes, &mut step);
            *values = step;
        }
        if !tail.is_empty() {
            self.format.decode(tail, tail_values);
        }
    }
}
