//! The inner loop of a format whose rows are equal steps of bytes, compiled for every instruction set.

use std::marker::PhantomData;

use pulp::{Arch, Simd, WithSimd};

use crate::{Part, QuantFormat, kernels::WeightRows};

/// A format of equal blocks that decodes `LEN` values at a time, from `BYTES` bytes.
///
/// A step is one block or several, and `LEN` a multiple of 16. What is left of a row after whole steps is decoded as
/// a step that is filled up with zeros.
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
///
/// Rows that begin or end inside a block are decoded with the whole of it.
///
/// # Panics
/// If the format has no [`block`](QuantFormat::block).
pub fn decode_packed<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    format: &F,
    rows: &WeightRows<'_>,
    values: &mut [f32],
) {
    let block = format.block().expect("a format of steps has blocks");
    let wanted = rows.values();
    let first = wanted.start / block.len * block.len;
    let bytes = &rows.parts().bytes(Part::VALUES)[first / block.len * block.bytes..];
    let num_bytes = (wanted.end - first).div_ceil(block.len) * block.bytes;
    Arch::new().dispatch(Decode::<F, LEN, BYTES> {
        bytes: &bytes[..num_bytes],
        skipped: wanted.start - first,
        values,
        format: PhantomData,
    });
}

/// Decodes what is left of a row after whole steps, `bytes`, into a step that is filled up with zeros.
#[inline(always)]
pub(super) fn unpack_tail<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    bytes: &[u8],
) -> [f32; LEN] {
    let (mut padded, mut values) = ([0; BYTES], [0.0; LEN]);
    padded[..bytes.len()].copy_from_slice(bytes);
    F::unpack(&padded, &mut values);
    values
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
    bytes: &'a [u8],
    /// Values of the first block that are not wanted.
    skipped: usize,
    values: &'a mut [f32],
    format: PhantomData<F>,
}

impl<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize> WithSimd
    for Decode<'_, F, LEN, BYTES>
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let (steps, tail) = self.bytes.as_chunks::<BYTES>();
        let mut steps = steps.iter();
        let mut values = self.values;
        if self.skipped > 0 {
            let step = steps.next().map_or_else(
                || unpack_tail::<F, LEN, BYTES>(tail),
                |bytes| unpacked::<F, LEN, BYTES>(bytes),
            );
            let len = values.len().min(LEN - self.skipped);
            let (head, rest) = values.split_at_mut(len);
            head.copy_from_slice(&step[self.skipped..][..len]);
            values = rest;
        }
        let (whole, rest) = values.as_chunks_mut::<LEN>();
        for (values, bytes) in whole.iter_mut().zip(&mut steps) {
            // A local array cannot overlap `bytes`, so the loops inside vectorise.
            *values = unpacked::<F, LEN, BYTES>(bytes);
        }
        if !rest.is_empty() {
            let step = steps.next().map_or_else(
                || unpack_tail::<F, LEN, BYTES>(tail),
                |bytes| unpacked::<F, LEN, BYTES>(bytes),
            );
            rest.copy_from_slice(&step[..rest.len()]);
        }
    }
}

#[inline(always)]
fn unpacked<F: Unpack<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    bytes: &[u8; BYTES],
) -> [f32; LEN] {
    let mut values = [0.0; LEN];
    F::unpack(bytes, &mut values);
    values
}

/// Registers a format of one tensor in equal blocks, for which [`Unpack`] is implemented; `writable` behind the block
/// says that [`Pack`](crate::kernels::Pack) is, too. With `; dot: codes` at the end it is [`Coded`](crate::kernels::Coded) that is
/// implemented; with `; dot: registers` few input rows are multiplied without a buffer for the decoded row: worth its long
/// compilation for common formats of short steps. `; device: []` after that is for this crate's own formats: those for which
/// `DecodeEight` is implemented, with a table in the brackets where their words begin with one.
///
/// ```
/// use overglaze_quant::{kernels::Unpack, register_format};
///
/// register_format! {
///     /// Signed bytes over 127.
///     Bytes { name: "bytes", tag: "BYTES", block: [1, 1] }
/// }
///
/// impl Unpack<32, 32> for Bytes {
///     #[inline(always)]
///     fn unpack(bytes: &[u8; 32], values: &mut [f32; 32]) {
///         for (value, byte) in values.iter_mut().zip(bytes) {
///             *value = f32::from(byte.cast_signed()) / 127.0;
///         }
///     }
/// }
/// ```
#[macro_export]
macro_rules! register_format {
    (
        $(#[$docs:meta])*
        $format:ident {
            name: $name:literal, tag: $tag:literal, $(ggml_type: $id:literal,)? block: [$len:literal, $bytes:literal]
            $(, $writable:ident)? $(; dot: $place:ident)? $(; device: [$($table:expr)?])?
        }
    ) => {
        $(#[$docs])*
        #[derive(Debug)]
        struct $format;

        $crate::inventory::submit! { $crate::FormatEntry(&$format) }

        impl $crate::QuantFormat for $format {
            fn name(&self) -> &'static str {
                $name
            }

            fn tags(&self) -> &'static [&'static str] {
                &[$tag]
            }

            $(fn ggml_type(&self) -> Option<u32> {
                Some($id)
            })?

            fn block(&self) -> Option<$crate::Block> {
                Some($crate::Block { len: $len, bytes: $bytes })
            }

            $($crate::device_words!($format [$($table)?]);)?

            $(fn encoders(&self) -> &'static [&'static dyn $crate::Encode] {
                $crate::register_format!(@ $writable);
                &[&$format]
            })?

            fn decode_rows(&self, rows: &$crate::kernels::WeightRows<'_>, values: &mut [f32]) {
                $crate::register_format!(@ decode [$($place)?] self, rows, values);
            }

            $(fn dot_rows(
                &self,
                rows: &$crate::kernels::WeightRows<'_>,
                input: $crate::kernels::InputRows<'_>,
                output: &mut $crate::kernels::OutputTile<'_>,
            ) {
                $crate::register_format!(@ dot $place self, rows, input, output);
            })?
        }

        $(impl $crate::Encode for $format {
            fn format(&self) -> &'static dyn $crate::QuantFormat {
                $crate::register_format!(@ $writable);
                &$format
            }

            fn takes(&self, shape: &[usize]) -> bool {
                shape.iter().product::<usize>().is_multiple_of($len)
            }

            fn encode(&self, values: &[f32], _shape: [usize; 2]) -> $crate::Parts {
                $crate::kernels::packed_blocks::<Self, $len, $bytes>(values)
            }

            fn stored_as(&self, name: &str, shape: &[usize]) -> Vec<$crate::StoredTensor> {
                let num_bytes = shape.iter().product::<usize>() / $len * $bytes;
                vec![$crate::StoredTensor::values(name, $tag, shape, num_bytes)]
            }
        })?
    };
    (@ writable) => {};
    (@ decode [codes] $self:expr, $rows:expr, $values:expr) => {
        $crate::kernels::decode_coded($self, $rows, $values)
    };
    (@ decode [$($place:ident)?] $self:expr, $rows:expr, $values:expr) => {
        $crate::kernels::decode_packed($self, $rows, $values)
    };
    (@ dot codes $self:expr, $rows:expr, $input:expr, $output:expr) => {
        $crate::kernels::dot_coded($self, $rows, $input, $output)
    };
    (@ dot registers $self:expr, $rows:expr, $input:expr, $output:expr) => {
        $crate::kernels::dot_packed($self, $rows, $input, $output)
    };
}

/// The method `device_words` of a format of blocks for which `DecodeEight` is implemented.
#[cfg(feature = "cube")]
#[doc(hidden)]
#[macro_export]
macro_rules! device_words {
    ($format:ident [$($table:expr)?]) => {
        fn device_words(&self, _: [usize; 2], parts: &$crate::Parts) -> Option<$crate::DeviceWords> {
            let kernels = $crate::cube::Kernels::<$format>::shared();
            let table = $crate::cube::table_words(&[$(&$table)?]);
            Some($crate::DeviceWords::of_blocks(kernels, table, parts))
        }
    };
}

/// Without the feature `cube` no format has any.
#[cfg(not(feature = "cube"))]
#[doc(hidden)]
#[macro_export]
macro_rules! device_words {
    ($format:ident [$($table:expr)?]) => {};
}
