//! Finding NaN and infinity in a tensor, and its largest number, in one pass over its bytes as the file stores them.
//!
//! A float is NaN or infinite exactly when all bits of its exponent are ones. An f64 counts as infinite
//! when it does not fit f32, which all patches are computed in.

use burn::tensor::{DType, TensorData, bf16, f16};

/// The first element of `data` that is no finite f32, and where it stands; `None` for other dtypes.
pub(crate) fn first_non_finite(data: &TensorData) -> Option<(usize, f64)> {
    let bytes = data.as_bytes();
    let index = match data.dtype() {
        DType::F16 => first_half(bytes, F16_EXPONENT),
        DType::BF16 => first_half(bytes, BF16_EXPONENT),
        DType::F32 | DType::Flex32 => first(bytes, |bytes| !f32::from_ne_bytes(bytes).is_finite()),
        DType::F64 => first(bytes, |bytes| !fits_f32(f64::from_ne_bytes(bytes))),
        _ => None,
    }?;
    let value = data.iter::<f64>().nth(index)?;
    Some((index, value))
}

/// The largest absolute value in `data`; 0 for other dtypes, and when there is none.
pub(crate) fn largest(data: &TensorData) -> f64 {
    // Without its sign, a float is ordered as the integer of its bits.
    let bytes = data.as_bytes();
    let half = || largest_bits(bytes, |bytes| u16::from_ne_bytes(bytes) & 0x7FFF);
    match data.dtype() {
        DType::F16 => f16::from_bits(half()).to_f64(),
        DType::BF16 => bf16::from_bits(half()).to_f64(),
        DType::F32 | DType::Flex32 => {
            let bits = largest_bits(bytes, |bytes| u32::from_ne_bytes(bytes) & 0x7FFF_FFFF);
            f32::from_bits(bits).into()
        }
        DType::F64 => f64::from_bits(largest_bits(bytes, |bytes| {
            u64::from_ne_bytes(bytes) & (u64::MAX >> 1)
        })),
        _ => 0.0,
    }
}

fn largest_bits<T: Ord + Default, const N: usize>(
    bytes: &[u8],
    without_sign: impl Fn([u8; N]) -> T,
) -> T {
    let (elements, _) = bytes.as_chunks::<N>();
    let bits = elements.iter().map(|element| without_sign(*element));
    bits.max().unwrap_or_default()
}

/// Eight halves at a time: one more in the lowest bit of an exponent of ones carries into the sign's place, and of no
/// other exponent.
fn first_half(bytes: &[u8], exponent: u16) -> Option<usize> {
    let (masks, lowest) = (in_every_lane(exponent), exponent & exponent.wrapping_neg());
    let (ones, carries) = (in_every_lane(lowest), in_every_lane(0x8000));
    let (groups, _) = bytes.as_chunks::<16>();
    let is_bad = |group: &[u8; 16]| ((u128::from_ne_bytes(*group) & masks) + ones) & carries != 0;
    let start = groups.iter().position(is_bad).unwrap_or(groups.len()) * 8;
    let rest = bytes.get(2 * start..)?;
    let index = first(rest, |bytes| {
        u16::from_ne_bytes(bytes) & exponent == exponent
    })?;
    Some(start + index)
}

fn in_every_lane(lane: u16) -> u128 {
    u128::from(lane) * (u128::MAX / 0xFFFF)
}

fn first<const N: usize>(bytes: &[u8], is_bad: impl Fn([u8; N]) -> bool) -> Option<usize> {
    let (elements, _) = bytes.as_chunks::<N>();
    elements.iter().position(|element| is_bad(*element))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what a value becomes in f32 is the question"
)]
fn fits_f32(value: f64) -> bool {
    (value as f32).is_finite()
}

const F16_EXPONENT: u16 = 0x7C00;
const BF16_EXPONENT: u16 = 0x7F80;
