//! GGML `Q2_K`: blocks of 256 values, 16 groups of 16 with scales and minima of 4 bits: `value = d·s · q - dmin·m`.
//!
//! Layout: `scales: [u8; 16] | qs: [u8; 64] | d: f16 | dmin: f16`, 84 bytes: a group's scale in the low half of its byte,
//! its minimum in the high half. Value 128·h + 32·j + l is in bits 2j of byte 32·h + l (`block_q2_K` in ggml-common.h).

use crate::{
    kernels::{Pack, Unpack},
    register_format,
};

use super::{Groups, half_at};

register_format! {
    /// 2.625 bits a value.
    Q2K { name: "q2_k", tag: "Q2_K", ggml_type: 10, block: [256, 84], writable }
}

impl Unpack<256, 84> for Q2K {
    #[inline(always)]
    fn unpack(bytes: &[u8; 84], values: &mut [f32; 256]) {
        let (d, dmin) = (half_at(bytes, 80), half_at(bytes, 82));
        for group in 0..16 {
            let scale = d * f32::from(bytes[group] & 15);
            let minimum = dmin * f32::from(bytes[group] >> 4);
            let (first, shift) = (16 + group / 8 * 32 + group % 2 * 16, group / 2 % 4 * 2);
            for l in 0..16 {
                let code = bytes[first + l] >> shift & 3;
                values[16 * group + l] = scale * f32::from(code) - minimum;
            }
        }
    }
}

impl Pack<256, 84> for Q2K {
    fn pack(values: &[f32; 256], bytes: &mut [u8; 84]) {
        let groups = Groups::<16>::affine(values, 3.0, 15.0);
        bytes.fill(0);
        bytes[80..82].copy_from_slice(&groups.d.to_le_bytes());
        bytes[82..84].copy_from_slice(&groups.dmin.to_le_bytes());
        for group in 0..16 {
            bytes[group] = groups.scales[group] | groups.minima[group] << 4;
            let (first, shift) = (16 + group / 8 * 32 + group % 2 * 16, group / 2 % 4 * 2);
            for l in 0..16 {
                let code = groups.code(group, values[16 * group + l], 3.0);
                bytes[first + l] |= code << shift;
            }
        }
    }
}
