//! GGML `Q5_1`: blocks of 32 values, an f16 scale, an f16 minimum and 32 codes of 5 bits: `value = d · q + m`.
//!
//! Layout: `d: f16 | m: f16 | qh: u32 | qs: [u8; 16]`, 24 bytes: codes as in `Q5_0` (`block_q5_1` in ggml-common.h).

use crate::{
    kernels::{Pack, Unpack},
    register_format,
};

use super::{code, half_at, put_fives, put_span};

register_format! {
    /// 6 bits a value.
    Q5_1 { name: "q5_1", tag: "Q5_1", ggml_type: 7, block: [32, 24], writable }
}

impl Unpack<32, 24> for Q5_1 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 24], values: &mut [f32; 32]) {
        let (d, m) = (half_at(bytes, 0), half_at(bytes, 2));
        let high = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        for i in 0..16 {
            let byte = u32::from(bytes[8 + i]);
            values[i] = d * ((byte & 15) | (high >> i << 4 & 16)) as f32 + m;
            values[16 + i] = d * ((byte >> 4) | (high >> i >> 12 & 16)) as f32 + m;
        }
    }
}

impl Pack<32, 24> for Q5_1 {
    fn pack(values: &[f32; 32], bytes: &mut [u8; 24]) {
        let [d, m] = put_span(values, 31.0, bytes);
        let codes = values.map(|value| code(value - m, d, 0.0, 31.0));
        put_fives(
            &codes,
            bytes.last_chunk_mut().expect("a block has 24 bytes"),
        );
    }
}
