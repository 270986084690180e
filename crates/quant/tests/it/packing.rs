//! Packed matrices for tests, in any format whose values stand in blocks.

use bytes::Bytes;
use overglaze_quant::{Part, Parts, QuantFormat, QuantizedTensor, formats_by_name, values_bytes};

/// `[d_output, d_input]` with `d_input` rounded up to whole blocks, of finite values of both signs: those of [`values`]
/// where the format can be written, of any size else.
pub(crate) fn packed(
    format: &'static dyn QuantFormat,
    [d_output, d_input]: [usize; 2],
) -> QuantizedTensor {
    let block = format.block().unwrap();
    let shape = [d_output, d_input.next_multiple_of(block.len)];
    let parts = match format.encoders().first() {
        Some(encoder) => encoder.encode(&weights(shape), shape),
        // As an f64, and as an integer a large one.
        None if block.bytes == size_of::<f64>() => {
            let doubles = weights(shape).into_iter().map(f64::from);
            Parts::values(doubles.flat_map(f64::to_le_bytes).collect())
        }
        None => Parts::values(finite_bytes(num_bytes(format, shape)).into()),
    };
    QuantizedTensor::new(format, shape, parts).unwrap()
}

/// The same matrix with its bytes at `offset` within an allocation.
pub(crate) fn moved(weight: &QuantizedTensor, offset: usize) -> QuantizedTensor {
    let bytes = weight.parts().bytes(Part::VALUES);
    let shifted = Bytes::from([&vec![0; offset], bytes].concat()).slice(offset..);
    QuantizedTensor::new(weight.format(), weight.shape(), Parts::values(shifted)).unwrap()
}

pub(crate) fn num_bytes(format: &'static dyn QuantFormat, shape: [usize; 2]) -> usize {
    values_bytes(format.name(), shape, format.block().unwrap()).unwrap()
}

/// The formats whose weights are blocks of one tensor.
pub(crate) fn block_formats() -> Vec<&'static dyn QuantFormat> {
    let formats = formats_by_name().into_iter();
    formats.filter(|format| format.block().is_some()).collect()
}

/// Those that hold values of ordinary size in [`packed`].
pub(crate) fn ordinary_formats() -> Vec<&'static dyn QuantFormat> {
    let formats = block_formats().into_iter();
    formats
        .filter(|format| !format.encoders().is_empty() || format.dense_dtype().is_some())
        .collect()
}

/// As [`values`], in another order: a product of the two is no sum of squares.
fn weights([d_output, d_input]: [usize; 2]) -> Vec<f32> {
    values(d_output * d_input).into_iter().rev().collect()
}

/// Values between -1 and 1, none of them special.
pub(crate) fn values(len: usize) -> Vec<f32> {
    random_bytes(len)
        .map(|byte| (f32::from(byte) - 127.5) / 128.0)
        .collect()
}

/// Bytes `±0x30..=±0x3f`: in a number of any width they give exponents of ordinary size.
fn finite_bytes(len: usize) -> Vec<u8> {
    random_bytes(len).map(|byte| 0x30 | byte & 0x8f).collect()
}

fn random_bytes(len: usize) -> impl Iterator<Item = u8> {
    let mut state = 0x2545_f491u32;
    (0..len).map(move |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[3]
    })
}
