//! Finding NaN and infinity in a tensor, in one pass over its bytes as the file stores them.
//!
//! A float is NaN or infinite exactly when all bits of its exponent are ones. An f64 counts as infinite
//! when it does not fit f32, which all patches are computed in.

use burn::tensor::{DType, TensorData};

/// The first element of `data` that is no finite f32, and where it stands; `None` for other dtypes.
pub(crate) fn first_non_finite(data: &TensorData) -> Option<(usize, f64)> {
    let bytes = data.as_bytes();
    let index = match data.dtype() {
        DType::F16 => first(bytes, |bytes| {
            u16::from_ne_bytes(bytes) & F16_EXPONENT == F16_EXPONENT
        }),
        DType::BF16 => first(bytes, |bytes| {
            u16::from_ne_bytes(bytes) & BF16_EXPONENT == BF16_EXPONENT
        }),
        DType::F32 | DType::Flex32 => first(bytes, |bytes| !f32::from_ne_bytes(bytes).is_finite()),
        DType::F64 => first(bytes, |bytes| !fits_f32(f64::from_ne_bytes(bytes))),
        _ => None,
    }?;
    let value = data.iter::<f64>().nth(index)?;
    Some((index, value))
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
