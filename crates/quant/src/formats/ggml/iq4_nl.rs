//! GGML `IQ4_NL`: blocks of 32 values, an f16 scale and 32 codes of 4 bits into a table: `value = d · table[q]`.
//!
//! Layout: `d: f16 | qs: [u8; 16]`, 18 bytes, as `Q4_0` (`block_iq4_nl` and `kvalues_iq4nl` in ggml-common.h).

#[cfg(feature = "cube")]
use crate::cube::{
    DecodeEight,
    bits::{entry_at, f16_at, nibble_at},
};
#[cfg(feature = "cube")]
use cubecl::prelude::*;
use half::f16;

use crate::{
    kernels::{Coded, Pack},
    register_format,
};

use super::{
    bits::{halves, put},
    half_at, uneven,
};

register_format! {
    /// 4.5 bits a value, unevenly spaced.
    Iq4Nl { name: "iq4_nl", tag: "IQ4_NL", ggml_type: 20, block: [32, 18], writable; dot: codes; device: [uneven::DEVICE_TABLE] }
}

impl Coded<32, 18, 1> for Iq4Nl {
    const TABLE: Option<[i8; 16]> = Some(uneven::TABLE);

    #[inline(always)]
    fn codes(bytes: &[u8; 18], codes: &mut [i8; 32]) {
        let [low, high] = halves(bytes.last_chunk::<16>().expect("a block is longer"));
        put(&low, 0, codes);
        put(&high, 0, &mut codes[16..]);
    }

    #[inline(always)]
    fn lines(bytes: &[u8; 18], scales: &mut [f32; 1], _starts: &mut [f32; 1]) {
        scales[0] = half_at(bytes, 0);
    }
}

#[cfg(feature = "cube")]
#[cube]
impl DecodeEight for Iq4Nl {
    fn eight(words: &[u32], start: usize, values: &mut Array<f32>) {
        let block = start / 32 * 18 + 32;
        let l = start % 32;
        let d = f16_at(words, block);
        let shift = 4 * (l as u32 / 16);
        #[unroll]
        for k in 0..8usize {
            let code = nibble_at(words, block + 2 + l % 16 + k, shift);
            values[k] = d * (f32::cast_from(entry_at(words, 0, code)) - 128.0);
        }
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
