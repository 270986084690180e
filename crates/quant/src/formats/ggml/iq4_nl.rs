//! GGML `IQ4_NL`: blocks of 32 values, an f16 scale and 32 codes of 4 bits into a table: `value = d · table[q]`.
//!
//! Layout: `d: f16 | qs: [u8; 16]`, 18 bytes, as `Q4_0` (`block_iq4_nl` and `kvalues_iq4nl` in ggml-common.h).

use half::f16;

use crate::{
    kernels::{Pack, Unpack},
    register_format,
};

use super::{half_at, uneven};

register_format! {
    /// 4.5 bits a value, unevenly spaced.
    Iq4Nl { name: "iq4_nl", tag: "IQ4_NL", ggml_type: 20, block: [32, 18], writable; dot: registers }
}

impl Unpack<32, 18> for Iq4Nl {
    #[inline(always)]
    fn unpack(bytes: &[u8; 18], values: &mut [f32; 32]) {
        let d = Self::unpack_unscaled(bytes, values);
        values.iter_mut().for_each(|value| *value *= d);
    }

    #[inline(always)]
    fn unpack_unscaled(bytes: &[u8; 18], values: &mut [f32; 32]) -> f32 {
        for i in 0..16 {
            let byte = bytes[2 + i];
            values[i] = uneven::VALUES[usize::from(byte & 15)];
            values[16 + i] = uneven::VALUES[usize::from(byte >> 4)];
        }
        half_at(bytes, 0)
    }
}

impl Pack<32, 18> for Iq4Nl {
    fn pack(values: &[f32; 32], bytes: &mut [u8; 18]) {
        let d = f16::from_f32(uneven::scale(values));
        bytes[..2].copy_from_slice(&d.to_le_bytes());
        let q = |value: f32| uneven::nearest(value, d.to_f32());
        for i in 0..16 {
            bytes[2 + i] = q(values[i]) | q(values[16 + i]) << 4;
        }
    }
}
