//! GGML `MXFP4`: blocks of 32 values, a power of two and 32 floats of 4 bits (E2M1): `value = 2^(e - 127) · q`.
//!
//! Layout: `e: u8 | qs: [u8; 16]`, 17 bytes: value i in the low half of byte i, value i + 16 in the high half (`block_mxfp4`
//! in ggml-common.h; OCP Microscaling Formats specification 1.0). The codes are read doubled, so the power is halved.

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, nibble_at, widen_f4_doubled},
};
use crate::{kernels::Coded, register_format};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    bits::{halves, put},
    four_bit_float::DOUBLED,
};

register_format! {
    /// 4.25 bits a value.
    Mxfp4 { name: "mxfp4", tag: "MXFP4", ggml_type: 39, block: [32, 17]; dot: codes; device: [] }
}

impl Coded<32, 17, 1> for Mxfp4 {
    const TABLE: Option<[i8; 16]> = Some(DOUBLED);

    #[inline(always)]
    fn codes(bytes: &[u8; 17], codes: &mut [i8; 32]) {
        let [low, high] = halves(bytes.last_chunk::<16>().expect("a block is longer"));
        put(&low, 0, codes);
        put(&high, 0, &mut codes[16..]);
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 17], scales: &mut [f32; 1], _starts: &mut [f32; 1]) {
        scales[0] = half_of_power(bytes[0]);
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Mxfp4 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 32 * 17;
        let l = start % 32;
        let e = byte_at(words, block);
        // 2^(e - 128), below 2^-126 a subnormal number.
        let power = select(e < 2, 0x0020_0000u32 << e, (e - 1) << 23);
        let scale = f32::reinterpret(power);
        let shift = 4 * (l as u32 / 16);
        #[unroll]
        for k in 0..8usize {
            let code = nibble_at(words, block + 1 + l % 16 + k, shift);
            values[k] = scale * widen_f4_doubled(code);
        }
    }
}

/// `2^(e - 128)`, of which the two smallest are subnormal.
#[inline(always)]
fn half_of_power(e: u8) -> f32 {
    let e = u32::from(e);
    f32::from_bits(if e < 2 {
        0x0020_0000 << e
    } else {
        (e - 1) << 23
    })
}
