//! GGML `Q5_K`: blocks of 256 values, 8 groups of 32 with scales and minima of 6 bits: `value = d·s · q - dmin·m`.
//!
//! Layout: `d: f16 | dmin: f16 | scales: [u8; 12] | qh: [u8; 32] | qs: [u8; 128]`, 176 bytes: the lower four bits as in
//! `Q4_K`, the fifth of value 32·j + l in bit j of `qh` byte l (`block_q5_K` in ggml-common.h).

use crate::{
    kernels::{Pack, Unpack},
    register_format,
};

use super::{Groups, half_at, six_bits};

register_format! {
    /// 5.5 bits a value.
    Q5K { name: "q5_k", tag: "Q5_K", ggml_type: 13, block: [256, 176], writable }
}

impl Unpack<256, 176> for Q5K {
    #[inline(always)]
    fn unpack(bytes: &[u8; 176], values: &mut [f32; 256]) {
        let (d, dmin) = (half_at(bytes, 0), half_at(bytes, 2));
        let scales: &[u8; 12] = bytes[4..16].try_into().expect("there are 12");
        for group in 0..8 {
            let [scale, minimum] = six_bits(scales, group);
            let (scale, minimum) = (d * f32::from(scale), dmin * f32::from(minimum));
            for l in 0..32 {
                let low = bytes[48 + group / 2 * 32 + l] >> (group % 2 * 4) & 15;
                let high = bytes[16 + l] >> group & 1;
                values[32 * group + l] = scale * f32::from(low | high << 4) - minimum;
            }
        }
    }
}

impl Pack<256, 176> for Q5K {
    fn pack(values: &[f32; 256], bytes: &mut [u8; 176]) {
        let groups = Groups::<8>::affine(values, 31.0, 63.0);
        bytes.fill(0);
        groups.put_header(bytes);
        for group in 0..8 {
            for l in 0..32 {
                let code = groups.code(group, values[32 * group + l], 31.0);
                bytes[48 + group / 2 * 32 + l] |= (code & 15) << (group % 2 * 4);
                bytes[16 + l] |= code >> 4 << group;
            }
        }
    }
}
