//! Rows of a validated weight, decoded: codes, then values from them, then what lies over those.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use crate::{
    Part, Parts,
    kernels::{minifloat, widen_bytes},
};

use super::{
    NESTED, SCALE, ZERO_POINT,
    codes::{CodeKind, Codes},
    numbers::Numbers,
    settings::Settings,
    svd::Svd,
    turn::turn,
};

/// A validated weight.
pub(super) struct SdnqWeight<'a> {
    settings: Settings,
    values: &'a [u8],
    d_input: usize,
    d_output: usize,
    scale: Numbers<'a>,
    zero_point: Option<Numbers<'a>>,
    svd: Option<Svd<'a>>,
}

impl<'a> SdnqWeight<'a> {
    pub(super) fn of(parts: &'a Parts, d_input: usize) -> Self {
        let settings = Settings::of(parts).expect("the parts were validated");
        let values = parts.bytes(Part::VALUES);
        let [scale_2, scale_start, point_scale, point_start] = NESTED;
        let scale = Numbers::of(parts, SCALE, [scale_2, scale_start]);
        let [chunk_len, chunk_bytes] = settings.codes.chunk();
        let num_values = values.len() / usize::from(settings.stride) / chunk_bytes * chunk_len;
        Self {
            settings,
            values,
            d_input,
            d_output: num_values / d_input.max(1),
            scale: scale.expect("the parts were validated"),
            zero_point: Numbers::of(parts, ZERO_POINT, [point_scale, point_start]),
            svd: Svd::of(parts, d_input),
        }
    }

    /// Decodes one row; `codes` has as many places as a row has values.
    pub(super) fn decode_row(&self, row: usize, codes: &mut [u8], values: &mut [f32]) {
        self.read_codes(row, codes);
        if self.settings.is_codebook {
            self.look_up(row, codes, values);
        } else {
            self.settings.codes.widen(codes, values);
            self.scale_values(row, values);
        }
        if let Some(svd) = &self.svd {
            svd.add(row, self.settings.is_conv, values);
        }
        let len = usize::try_from(self.settings.hadamard).unwrap_or(0);
        if len > 0 {
            values.chunks_exact_mut(len).for_each(turn);
        }
    }

    fn scale_values(&self, row: usize, values: &mut [f32]) {
        for run in self.runs(row) {
            let line = [
                self.scale.get(run.index),
                self.zero_point
                    .as_ref()
                    .map_or(0.0, |points| points.get(run.index)),
            ];
            if run.step == 1 {
                let values = &mut values[run.columns];
                Arch::new().dispatch(OnLine { line, values });
            } else {
                let [scale, start] = line;
                for column in run.columns.step_by(run.step) {
                    values[column] = values[column].mul_add(scale, start);
                }
            }
        }
    }

    fn look_up(&self, row: usize, codes: &[u8], values: &mut [f32]) {
        let positions = self.positions();
        let table = 1 << self.settings.codes.bits;
        for run in self.runs(row) {
            let (group, position) = (run.index / positions, run.index % positions);
            for column in run.columns.step_by(run.step) {
                let entry = group * table + usize::from(codes[column]);
                values[column] = self.scale.get(entry * positions + position);
            }
        }
    }

    /// Every scale of a row, with the columns it is for.
    fn runs(&self, row: usize) -> impl Iterator<Item = Run> + use<> {
        let positions = self.positions();
        let groups = usize::try_from(self.settings.num_groups)
            .unwrap_or(1)
            .max(1);
        let group_len = self.d_input / groups;
        let first = row * groups * positions;
        (0..groups * positions).map(move |index| {
            let (group, position) = (index / positions, index % positions);
            Run {
                index: first + index,
                columns: group * group_len + position..(group + 1) * group_len,
                step: positions,
            }
        })
    }

    fn positions(&self) -> usize {
        usize::try_from(self.settings.num_positions)
            .unwrap_or(1)
            .max(1)
    }

    fn read_codes(&self, row: usize, codes: &mut [u8]) {
        if self.settings.is_transposed {
            for (column, code) in codes.iter_mut().enumerate() {
                *code = self.values[column * self.d_output + row];
            }
            return;
        }
        let wanted = row * self.d_input..(row + 1) * self.d_input;
        match (self.settings.codes.bits, self.settings.stride) {
            (8, 1) => codes.copy_from_slice(&self.values[wanted]),
            (4, 1) if self.d_input.is_multiple_of(2) => {
                let bytes = &self.values[wanted.start / 2..wanted.end / 2];
                let (pairs, _) = codes.as_chunks_mut::<2>();
                for (pair, byte) in pairs.iter_mut().zip(bytes) {
                    *pair = [byte & 15, byte >> 4];
                }
            }
            _ => self.read_chunks(wanted, codes),
        }
    }

    /// Codes of any width, from wherever in a chunk.
    fn read_chunks(&self, wanted: Range<usize>, row: &mut [u8]) {
        let codes: Codes = self.settings.codes;
        let [chunk_len, chunk_bytes] = codes.chunk();
        let stride = usize::from(self.settings.stride);
        let mut bytes = [0; 7];
        for chunk in wanted.start / chunk_len..wanted.end.div_ceil(chunk_len) {
            for (at, byte) in bytes[..chunk_bytes].iter_mut().enumerate() {
                *byte = self.values[(chunk * chunk_bytes + at) * stride];
            }
            let unpacked = codes.unpack(&bytes[..chunk_bytes]);
            let first = chunk * chunk_len;
            let (from, to) = (first.max(wanted.start), (first + chunk_len).min(wanted.end));
            row[from - wanted.start..to - wanted.start]
                .copy_from_slice(&unpacked[from - first..to - first]);
        }
    }
}

/// The columns of one scale.
struct Run {
    /// Which scale.
    index: usize,
    columns: Range<usize>,
    step: usize,
}

impl Codes {
    /// What every code stands for.
    fn widen(self, codes: &[u8], values: &mut [f32]) {
        match self.kind {
            CodeKind::Unsigned => widen_bytes(codes, f32::from, values),
            // Whole bytes are stored as they are.
            CodeKind::Signed if self.bits == 8 => {
                widen_bytes(codes, |code| f32::from(code.cast_signed()), values);
            }
            CodeKind::Signed => {
                let zero = f32::from(1_u8 << (self.bits - 1));
                widen_bytes(codes, |code| f32::from(code) - zero, values);
            }
            CodeKind::Float {
                exponent: 4,
                mantissa: 3,
            } => widen_bytes(codes, minifloat::widen_f8_e4m3, values),
            CodeKind::Float {
                exponent: 5,
                mantissa: 2,
            } => widen_bytes(codes, minifloat::widen_f8_e5m2, values),
            CodeKind::Float { .. } => {
                let table = self.float_table();
                for (value, code) in values.iter_mut().zip(codes) {
                    *value = table[usize::from(*code)];
                }
            }
        }
    }
}

/// `value · scale + start`, fused as SDNQ's addition of a product is.
struct OnLine<'a> {
    line: [f32; 2],
    values: &'a mut [f32],
}

impl WithSimd for OnLine<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let [scale, start] = self.line;
        for value in self.values {
            *value = value.mul_add(scale, start);
        }
    }
}
