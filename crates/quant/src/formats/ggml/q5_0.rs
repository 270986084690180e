//! GGML `Q5_0`: blocks of 32 values, an f16 scale and 32 codes of 5 bits: `value = d · (q - 16)`.
//!
//! Layout: `d: f16 | qh: u32 | qs: [u8; 16]`, 22 bytes: the lower four bits of value i in the low half of byte i, of
//! value i + 16 in the high half; the fifth bit of value i is bit i of `qh` (`block_q5_0` in ggml-common.h).

use half::f16;

use crate::{
    kernels::{Pack, Unpack, fit::symmetric_scale},
    register_format,
};

use super::{code, half_at, put_fives};

register_format! {
    /// 5.5 bits a value.
    Q5_0 { name: "q5_0", tag: "Q5_0", ggml_type: 6, block: [32, 22], writable }
}

impl Unpack<32, 22> for Q5_0 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 22], values: &mut [f32; 32]) {
        let d = Self::unpack_unscaled(bytes, values);
        values.iter_mut().for_each(|value| *value *= d);
    }

    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; 22], values: &mut [f32; 32]) -> f32 {
        let high = u32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
        for i in 0..16 {
            let byte = u32::from(bytes[6 + i]);
            values[i] = ((byte & 15) | (high >> i << 4 & 16)) as f32 - 16.0;
            values[16 + i] = ((byte >> 4) | (high >> i >> 12 & 16)) as f32 - 16.0;
        }
        half_at(bytes, 0)
    }
}

impl Pack<32, 22> for Q5_0 {
    fn pack(values: &[f32; 32], bytes: &mut [u8; 22]) {
        let d = f16::from_f32(symmetric_scale(values, 16.0));
        let [d_bytes @ .., _, _, _, _] =
            bytes.first_chunk_mut::<6>().expect("a block has 22 bytes");
        *d_bytes = d.to_le_bytes();
        let codes = values.map(|value| code(value, d.to_f32(), 16.0, 31.0));
        put_fives(
            &codes,
            bytes.last_chunk_mut().expect("a block has 22 bytes"),
        );
    }
}
