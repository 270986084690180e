//! GGML `NVFP4`: blocks of 64 values, 4 groups of 16 with scales of 8 bits and floats of 4 bits (E2M1): `value = s · q`.
//!
//! Layout: `d: [u8; 4] | qs: [u8; 32]`, 36 bytes: the scales are E4M3 without a sign (0x7f is zero); of a group, value l in the
//! low half of byte l, value l + 8 in the high half (`block_nvfp4` in ggml-common.h). The codes are read doubled, so the
//! scale is halved.

use crate::{
    kernels::{Unpack, minifloat},
    register_format,
};

use super::four_bit_float::DOUBLED;

register_format! {
    /// 4.5 bits a value.
    Nvfp4 { name: "nvfp4", tag: "NVFP4", ggml_type: 40, block: [64, 36] }
}

impl Unpack<64, 36> for Nvfp4 {
    #[inline(always)]
    fn unpack(bytes: &[u8; 36], values: &mut [f32; 64]) {
        for group in 0..4 {
            let scale = HALVES[usize::from(bytes[group])];
            for l in 0..8 {
                let byte = bytes[4 + 8 * group + l];
                values[16 * group + l] = scale * DOUBLED[usize::from(byte & 15)];
                values[16 * group + 8 + l] = scale * DOUBLED[usize::from(byte >> 4)];
            }
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
