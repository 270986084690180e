//! GGML `NVFP4`: blocks of 64 values, 4 groups of 16 with scales of 8 bits and floats of 4 bits (E2M1): `value = s · q`.
//!
//! Layout: `d: [u8; 4] | qs: [u8; 32]`, 36 bytes: the scales are E4M3 without a sign (0x7f is zero); of a group, value l in the
//! low half of byte l, value l + 8 in the high half (`block_nvfp4` in ggml-common.h). The codes are read doubled, so the
//! scale is halved.

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{byte_at, nibble_at, widen_f4_doubled},
};
use crate::{
    kernels::{Coded, minifloat},
    register_format,
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;

use super::{
    bits::{halves, put},
    four_bit_float::DOUBLED,
};

register_format! {
    /// 4.5 bits a value.
    Nvfp4 { name: "nvfp4", tag: "NVFP4", ggml_type: 40, block: [64, 36]; dot: codes; device: [] }
}

impl Coded<64, 36, 4> for Nvfp4 {
    const TABLE: Option<[i8; 16]> = Some(DOUBLED);

    #[inline(always)]
    fn codes(bytes: &[u8; 36], codes: &mut [i8; 64]) {
        for group in 0..4 {
            let quants = bytes[4 + 8 * group..].first_chunk::<8>();
            let [low, high] = halves(quants.expect("a block is longer"));
            put(&low, 0, &mut codes[16 * group..]);
            put(&high, 0, &mut codes[16 * group + 8..]);
        }
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 36], scales: &mut [f32; 4], _starts: &mut [f32; 4]) {
        for group in 0..4 {
            scales[group] = HALVES[usize::from(bytes[group])];
        }
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Nvfp4 {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 64 * 36;
        let l = start % 64;
        let bits = byte_at(words, block + l / 16);
        let exponent = (bits >> 3) & 15;
        let mantissa = bits & 7;
        let normal = f32::reinterpret(((exponent + 119) << 23) | (mantissa << 20));
        let finite = select(
            exponent == 0,
            f32::cast_from(mantissa) * 0.000_976_562_5,
            normal,
        );
        let scale = select(bits == 127, 0.0, finite);
        let shift = 4 * (l as u32 / 8 % 2);
        let quants = block + 4 + l / 16 * 8;
        #[unroll]
        for k in 0..8usize {
            values[k] = scale * widen_f4_doubled(nibble_at(words, quants + k, shift));
        }
    }
}

/// Half of every scale; the sign bit counts for nothing, and the one pattern that is no number as zero.
static HALVES: [f32; 256] = {
    let mut halves = [0.0; 256];
    let mut bits = 0_u8;
    while bits < u8::MAX {
        if bits != 0x7f {
            halves[bits as usize] = minifloat(bits & 0x7f, [4, 3, 7]) * 0.5;
        }
        bits += 1;
    }
    halves[0xff] = minifloat(0x7f, [4, 3, 7]) * 0.5;
    halves
};
