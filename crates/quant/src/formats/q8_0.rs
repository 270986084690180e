//! GGML `Q8_0`: blocks of 32 values, an f16 scale and 32 signed bytes: `value = scale · q`.
//!
//! Layout: `d: f16 | qs: [i8; 32]`, 34 bytes (`block_q8_0` in ggml-common.h).

use crate::{
    FormatEntry, QuantFormat,
    kernels::{InputRows, OutputTile, Unpack, WeightRows, decode_packed, dot_packed, widen_f16},
};

inventory::submit! { FormatEntry(&Q8_0) }

/// 8.5 bits a value.
#[derive(Debug)]
struct Q8_0;

impl QuantFormat for Q8_0 {
    fn name(&self) -> &'static str {
        "q8_0"
    }

    fn tags(&self) -> &'static [&'static str] {
        &["Q8_0"]
    }

    fn block_len(&self) -> usize {
        32
    }

    fn block_bytes(&self) -> usize {
        34
    }

    fn decode(&self, blocks: &[u8], values: &mut [f32]) {
        for (values, block) in values
            .as_chunks_mut::<32>()
            .0
            .iter_mut()
            .zip(blocks.as_chunks::<34>().0)
        {
            let scale = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
            for (value, q) in values.iter_mut().zip(&block[2..]) {
                *value = scale * f32::from(q.cast_signed());
            }
        }
    }

    fn decode_rows(&self, rows: &WeightRows<'_>, values: &mut [f32]) {
        decode_packed(self, rows, values);
    }

    fn dot_rows(&self, rows: &WeightRows<'_>, input: InputRows<'_>, output: &mut OutputTile<'_>) {
        dot_packed(self, rows, input, output);
    }
}

impl Unpack<32, 34> for Q8_0 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 34], values: &mut [f32; 32]) {
        let scale = widen_f16(u16::from_le_bytes([bytes[0], bytes[1]]));
        for (value, q) in values.iter_mut().zip(&bytes[2..]) {
            *value = scale * f32::from(q.cast_signed());
        }
    }

    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; 34], values: &mut [f32; 32]) -> f32 {
        for (value, q) in values.iter_mut().zip(&bytes[2..]) {
            *value = f32::from(q.cast_signed());
        }
        widen_f16(u16::from_le_bytes([bytes[0], bytes[1]]))
    }
}
