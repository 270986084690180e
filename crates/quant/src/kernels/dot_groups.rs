//! Products with few input rows, whose weights are decoded a group at a time into registers and used for all of them.

use pulp::{Arch, Simd, WithSimd};

use crate::kernels::{InputRows, OutputTile};

/// A row of weights in groups of `LEN` values.
pub(crate) trait WeightGroups<const LEN: usize> {
    fn num_groups(&self) -> usize;

    /// The values of a group. Mark it `#[inline(always)]`.
    fn group<S: Simd>(&self, index: usize) -> [f32; LEN];
}

/// Writes the products of `weight` with every input row down the one column of `output`.
pub(crate) fn dot_groups<W: WeightGroups<LEN>, const LEN: usize>(
    weight: &W,
    input: InputRows<'_>,
    output: &mut OutputTile<'_>,
) {
    Arch::new().dispatch(Dot::<W, LEN> {
        weight,
        input,
        output,
    });
}

struct Dot<'a, 'b, W, const LEN: usize> {
    weight: &'a W,
    input: InputRows<'a>,
    output: &'a mut OutputTile<'b>,
}

impl<W: WeightGroups<LEN>, const LEN: usize> WithSimd for Dot<'_, '_, W, LEN> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let mut row = 0;
        while row < self.input.num_rows() {
            row += match self.input.num_rows() - row {
                1 => self.write_rows::<S, 1, 4>(simd, row),
                2 | 3 => self.write_rows::<S, 2, 2>(simd, row),
                4..8 => self.write_rows::<S, 4, 2>(simd, row),
                _ => self.write_rows::<S, 8, 1>(simd, row),
            };
        }
    }
}

impl<W: WeightGroups<LEN>, const LEN: usize> Dot<'_, '_, W, LEN> {
    /// Writes `N` rows of the output and says how many they were; every sum is `CHAINS` sums, so that one need not wait for
    /// the other.
    #[inline(always)]
    fn write_rows<S: Simd, const N: usize, const CHAINS: usize>(
        &mut self,
        simd: S,
        first: usize,
    ) -> usize {
        let num_groups = self.weight.num_groups();
        let mut input: [&[[f32; LEN]]; N] = [&[]; N];
        for (offset, row) in input.iter_mut().enumerate() {
            *row = &self.input.row(first + offset).as_chunks().0[..num_groups];
        }
        let mut sums = [[simd.splat_f32s(0.0); CHAINS]; N];
        for group in 0..num_groups {
            let weight = self.weight.group::<S>(group);
            let (weight, _) = S::as_simd_f32s(&weight);
            for n in 0..N {
                let (input, _) = S::as_simd_f32s(&input[n][group]);
                for (at, (weight, input)) in weight.iter().zip(input).enumerate() {
                    let sum = &mut sums[n][at % CHAINS];
                    *sum = simd.mul_add_e_f32s(*weight, *input, *sum);
                }
            }
        }
        for (offset, sums) in sums.iter().enumerate() {
            let mut total = sums[0];
            for sum in &sums[1..] {
                total = simd.add_f32s(total, *sum);
            }
            let total = simd.reduce_sum_f32s(total);
            self.output.write(first + offset, 0, [total]);
        }
        N
    }
}
