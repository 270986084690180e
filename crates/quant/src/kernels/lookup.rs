//! Tables of sixteen: what a code of four bits stands for, looked up for many codes at once in vector registers.

use pulp::Arch;

/// Replaces every code below 16 by its entry in `table`.
///
/// # Panics
/// If a code is none of these.
pub(crate) fn look_up_bytes(table: &[i8; 16], codes: &mut [i8]) {
    let rest = match Arch::new() {
        #[cfg(target_arch = "x86_64")]
        Arch::V3(simd) => x86::look_up_bytes(simd, table, codes),
        #[cfg(target_arch = "x86_64")]
        Arch::V4(simd) => x86::look_up_bytes(*simd, table, codes),
        _ => codes,
    };
    for code in rest {
        *code = table[usize::from(code.cast_unsigned())];
    }
}

/// Writes the entries of `table` for as many codes below 16.
///
/// # Panics
/// If a code is none of these, or the lengths differ.
pub(crate) fn look_up_floats(table: &[f32; 16], codes: &[u8], values: &mut [f32]) {
    assert_eq!(codes.len(), values.len(), "a value a code");
    let (codes, values) = match Arch::new() {
        #[cfg(target_arch = "x86_64")]
        Arch::V3(simd) => x86::look_up_floats(simd, table, codes, values),
        #[cfg(target_arch = "x86_64")]
        Arch::V4(simd) => x86::look_up_floats(*simd, table, codes, values),
        _ => (codes, values),
    };
    for (value, code) in values.iter_mut().zip(codes) {
        *value = table[usize::from(*code)];
    }
}

/// The instructions of AVX2 for it; each function gives back what is left after whole vectors.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use pulp::{NullaryFnOnce, cast, f32x8, i8x32, u8x16, u32x8, x86::V3};

    pub(super) fn look_up_bytes<'a>(
        simd: V3,
        table: &[i8; 16],
        codes: &'a mut [i8],
    ) -> &'a mut [i8] {
        let (vectors, rest) = codes.as_chunks_mut::<32>();
        simd.vectorize(Bytes {
            simd,
            table,
            vectors,
        });
        rest
    }

    pub(super) fn look_up_floats<'a, 'b>(
        simd: V3,
        table: &[f32; 16],
        codes: &'a [u8],
        values: &'b mut [f32],
    ) -> (&'a [u8], &'b mut [f32]) {
        let (codes, codes_left) = codes.as_chunks::<16>();
        let (values, values_left) = values.as_chunks_mut::<16>();
        simd.vectorize(Floats {
            simd,
            table,
            codes,
            values,
        });
        (codes_left, values_left)
    }

    struct Bytes<'a> {
        simd: V3,
        table: &'a [i8; 16],
        vectors: &'a mut [[i8; 32]],
    }

    impl NullaryFnOnce for Bytes<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let avx2 = self.simd.avx2;
            // Each half of a vector looks up in its own half of the table.
            let table: i8x32 = cast([*self.table; 2]);
            for vector in self.vectors {
                let codes: i8x32 = cast(*vector);
                *vector = cast(avx2._mm256_shuffle_epi8(cast(table), cast(codes)));
            }
        }
    }

    struct Floats<'a> {
        simd: V3,
        table: &'a [f32; 16],
        codes: &'a [[u8; 16]],
        values: &'a mut [[f32; 16]],
    }

    impl NullaryFnOnce for Floats<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let [low, high]: [f32x8; 2] = cast(*self.table);
            for (codes, values) in self.codes.iter().zip(self.values) {
                let first: u8x16 = cast(*codes);
                let second: u8x16 = cast(u128::from_le_bytes(*codes) >> 64);
                let first = one(self.simd, first, low, high);
                let second = one(self.simd, second, low, high);
                *values = cast([first, second]);
            }
        }
    }

    /// The entries for the first eight codes: bits 0 to 2 choose in each half of the table, bit 3 between the halves.
    #[inline(always)]
    fn one(simd: V3, codes: u8x16, low: f32x8, high: f32x8) -> f32x8 {
        let (avx, avx2) = (simd.avx, simd.avx2);
        let indices: u32x8 = simd.convert_u8x16_to_u32x8(codes);
        let [low, high] = [
            avx2._mm256_permutevar8x32_ps(cast(low), cast(indices)),
            avx2._mm256_permutevar8x32_ps(cast(high), cast(indices)),
        ];
        let upper = avx2._mm256_slli_epi32::<28>(cast(indices));
        cast(avx._mm256_blendv_ps(low, high, cast(upper)))
    }
}
