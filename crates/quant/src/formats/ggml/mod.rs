//! GGML's block formats, as they stand in GGUF files (`ggml-common.h` and `ggml-quants.c` of ggml).
//!
//! Decoding gives ggml's f32 bit for bit. Writing solves scales by least squares where ggml's own reference takes what spans
//! the values.

mod bits;
mod four_bit_float;
mod grids;
mod groups;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod nvfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod q8_k;
mod tq1_0;
mod tq2_0;
mod uneven;

use half::f16;

use crate::kernels::{fit, widen_f16};

use self::groups::{Groups, lines_of_header, symmetric_groups};

/// The f16 at byte `at`.
#[inline(always)]
fn half_at(bytes: &[u8], at: usize) -> f32 {
    widen_f16(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// The code from 0 to `max` that is `value / scale` plus `offset`, to the nearest.
fn code(value: f32, scale: f32, offset: f32, max: f32) -> u8 {
    let ratio = if scale == 0.0 { 0.0 } else { value / scale };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is clamped to what eight bits hold"
    )]
    let code = (ratio.round_ties_even() + offset).clamp(0.0, max) as u8;
    code
}

/// A signed code that is stored plus `offset`.
fn shifted(code: i8, offset: i8) -> u8 {
    code.wrapping_add(offset).cast_unsigned()
}

/// Writes scale and start, as f16, of the line through codes from 0 to `max` that is nearest to `values`, and answers
/// them as they were rounded.
fn put_span(values: &[f32], max: f32, bytes: &mut [u8]) -> [f32; 2] {
    let halves = fit::line(values, max).map(f16::from_f32);
    bytes[..2].copy_from_slice(&halves[0].to_le_bytes());
    bytes[2..4].copy_from_slice(&halves[1].to_le_bytes());
    halves.map(f16::to_f32)
}

/// Writes codes of five bits: `qh: u32 | qs: [u8; 16]`.
fn put_fives(codes: &[u8; 32], bytes: &mut [u8; 20]) {
    let mut high = 0_u32;
    for (i, code) in codes.iter().enumerate() {
        high |= u32::from(code >> 4) << i;
    }
    bytes[..4].copy_from_slice(&high.to_le_bytes());
    for i in 0..16 {
        bytes[4 + i] = (codes[i] & 15) | codes[16 + i] << 4;
    }
}
