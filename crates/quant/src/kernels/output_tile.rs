//! Tiles of an output `[rows, d_output]` that threads write at the same time.

use std::{marker::PhantomData, ops::Range};

use gemm::{Parallelism, gemm};
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use crate::kernels::InputRows;

/// An output, cut into tiles of the same size; those at the right and lower edges are smaller.
#[derive(Debug)]
pub(crate) struct OutputGrid<'a> {
    output: &'a mut [f32],
    d_output: usize,
    tile_rows: usize,
    tile_columns: usize,
}

impl<'a> OutputGrid<'a> {
    /// # Panics
    /// If `output` is not a whole number of rows, or a side of a tile is zero.
    pub(crate) fn new(
        output: &'a mut [f32],
        d_output: usize,
        [tile_rows, tile_columns]: [usize; 2],
    ) -> Self {
        assert_eq!(
            output.len() % d_output,
            0,
            "the output is not a whole number of rows"
        );
        assert!(
            tile_rows > 0 && tile_columns > 0,
            "a tile has no rows or no columns"
        );
        Self {
            output,
            d_output,
            tile_rows,
            tile_columns,
        }
    }

    /// Every tile once, one after the other.
    pub(crate) fn into_tiles(self) -> impl Iterator<Item = OutputTile<'a>> {
        let tiling = self.tiling();
        (0..tiling.num_tiles()).map(move |index| tiling.tile(index))
    }

    /// Every tile once, in parallel.
    pub(crate) fn into_par_tiles(self) -> impl IndexedParallelIterator<Item = OutputTile<'a>> {
        let tiling = self.tiling();
        (0..tiling.num_tiles())
            .into_par_iter()
            .map(move |index| tiling.tile(index))
    }

    fn tiling(self) -> Tiling<'a> {
        Tiling {
            first: self.output.as_mut_ptr(),
            shape: [self.output.len() / self.d_output, self.d_output],
            tile: [self.tile_rows, self.tile_columns],
            output: PhantomData,
        }
    }
}

/// A part of an output: some rows, some columns.
#[derive(Debug)]
pub struct OutputTile<'a> {
    first: *mut f32,
    rows: Range<usize>,
    columns: Range<usize>,
    stride: usize,
    output: PhantomData<&'a mut [f32]>,
}

#[expect(unsafe_code, reason = "a tile is moved to the thread that writes it")]
// SAFETY: a tile is the only access to its values, like the `&mut [f32]` it was cut from.
unsafe impl Send for OutputTile<'_> {}

impl OutputTile<'_> {
    /// Rows of the output this tile holds.
    #[must_use]
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Columns of the output this tile holds.
    #[must_use]
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// Row `index` of the tile.
    ///
    /// # Panics
    /// If the tile has no such row.
    #[inline(always)]
    pub fn row_mut(&mut self, index: usize) -> &mut [f32] {
        assert!(index < self.rows.len(), "row {index} is outside the tile");
        let start = self.first.wrapping_add(index * self.stride);
        #[expect(unsafe_code, reason = "tiles of one output interleave in memory")]
        // SAFETY: `Tiling::tile` keeps rows and columns inside the output, so the `columns.len()` values from
        // `start` on are part of it; tiles are disjoint and this one is borrowed mutably.
        unsafe {
            std::slice::from_raw_parts_mut(start, self.columns.len())
        }
    }

    /// Writes `values` down a column, from row `first_row` of the tile on, and says how many they were.
    ///
    /// # Panics
    /// If the tile has no such rows or column.
    #[inline(always)]
    pub fn write<const N: usize>(
        &mut self,
        first_row: usize,
        column: usize,
        values: [f32; N],
    ) -> usize {
        for (offset, value) in values.into_iter().enumerate() {
            self.row_mut(first_row + offset)[column] = value;
        }
        N
    }

    /// Some columns of the tile, counted from its own first.
    ///
    /// # Panics
    /// If the tile has no such columns.
    pub fn narrow(&mut self, columns: Range<usize>) -> OutputTile<'_> {
        assert!(columns.start <= columns.end, "columns run backwards");
        assert!(
            columns.end <= self.columns.len(),
            "columns {columns:?} are outside the tile"
        );
        let start = self.columns.start;
        OutputTile {
            first: self.first.wrapping_add(columns.start),
            rows: self.rows(),
            columns: start + columns.start..start + columns.end,
            stride: self.stride,
            output: PhantomData,
        }
    }

    /// Writes `input · weightᵀ` by the `gemm` crate, on this thread; `weight` is `[columns, d_input]`.
    ///
    /// # Panics
    /// If the sizes do not fit the tile.
    pub(crate) fn multiply(&mut self, input: InputRows<'_>, weight: &[f32]) {
        let d_input = input.d_input();
        self.gemm(input, weight, [d_input, 1], Onto::Nothing);
    }

    /// Adds `input · weightᵀ`, as [`multiply`](Self::multiply) writes it.
    ///
    /// # Panics
    /// If the sizes do not fit the tile.
    pub(crate) fn add_product(&mut self, input: InputRows<'_>, weight: &[f32]) {
        let d_input = input.d_input();
        self.gemm(input, weight, [d_input, 1], Onto::Present);
    }

    /// Adds `left · right`; `right` is `[left's columns, columns]`.
    ///
    /// # Panics
    /// If the sizes do not fit the tile.
    pub(crate) fn add_product_of(&mut self, left: InputRows<'_>, right: &[f32]) {
        let strides = [1, self.columns.len()];
        self.gemm(left, right, strides, Onto::Present);
    }

    /// `weight` has `columns` times `d_input` values; `strides` are between its columns and along its depth.
    fn gemm(&mut self, input: InputRows<'_>, weight: &[f32], strides: [usize; 2], onto: Onto) {
        let [num_rows, num_columns] = [self.rows.len(), self.columns.len()];
        let d_input = input.d_input();
        assert_eq!(input.num_rows(), num_rows, "input rows and tile differ");
        assert_eq!(
            weight.len(),
            num_columns * d_input,
            "weight rows and tile differ"
        );
        let (stride, depth) = (self.stride.cast_signed(), d_input.cast_signed());
        let [between, along] = strides.map(usize::cast_signed);
        let (input, weight) = (input.values().as_ptr(), weight.as_ptr());
        #[expect(unsafe_code, reason = "the gemm crate takes pointers")]
        // SAFETY: `input` is `[rows, d_input]`, `weight` `[columns, d_input]` or its transpose, both without gaps
        // and checked above; the tile's rows are `stride` apart and nobody else reads or writes them.
        unsafe {
            gemm(
                num_rows,
                num_columns,
                d_input,
                self.first,
                1,
                stride,
                matches!(onto, Onto::Present),
                input,
                1,
                depth,
                weight,
                between,
                along,
                1.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }
}

/// What a product is added to.
#[derive(Clone, Copy)]
enum Onto {
    Nothing,
    Present,
}

/// How an output is cut.
struct Tiling<'a> {
    first: *mut f32,
    shape: [usize; 2],
    tile: [usize; 2],
    output: PhantomData<&'a mut [f32]>,
}

#[expect(unsafe_code, reason = "threads fetch their tiles from one tiling")]
// SAFETY: a tiling reads and writes nothing; it hands out tiles, each of them once.
unsafe impl Send for Tiling<'_> {}

#[expect(unsafe_code, reason = "threads fetch their tiles from one tiling")]
// SAFETY: as for `Send`: all its fields are constant.
unsafe impl Sync for Tiling<'_> {}

impl<'a> Tiling<'a> {
    fn num_tiles(&self) -> usize {
        self.shape[0].div_ceil(self.tile[0]) * self.shape[1].div_ceil(self.tile[1])
    }

    /// Tile `index`; the caller asks for each at most once. Neighbours share input rows.
    fn tile(&self, index: usize) -> OutputTile<'a> {
        let num_across = self.shape[1].div_ceil(self.tile[1]);
        let row = index / num_across * self.tile[0];
        let column = index % num_across * self.tile[1];
        OutputTile {
            first: self.first.wrapping_add(row * self.shape[1] + column),
            rows: row..self.shape[0].min(row + self.tile[0]),
            columns: column..self.shape[1].min(column + self.tile[1]),
            stride: self.shape[1],
            output: PhantomData,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `at(row, column)` of the output everywhere, by rows, columns and narrower tiles.
    fn fill(mut tile: OutputTile<'_>) {
        let (rows, columns) = (tile.rows(), tile.columns());
        for row in 0..rows.len() {
            for (value, column) in tile.row_mut(row).iter_mut().zip(columns.clone()) {
                *value = at(rows.start + row, column);
            }
        }
        let last = columns.len() - 1;
        let mut edge = tile.narrow(last..columns.len());
        for row in 0..rows.len() {
            assert_eq!(edge.row_mut(row), [at(rows.start + row, columns.end - 1)]);
            edge.write(row, 0, [-at(rows.start + row, columns.end - 1)]);
        }
        for row in 0..rows.len() {
            tile.row_mut(row)[last] *= -1.0;
        }
    }

    fn at(row: usize, column: usize) -> f32 {
        (row * 100 + column) as f32
    }

    #[test]
    fn tiles_of_any_size_are_the_whole_output() {
        for (shape, tile) in [([1, 1], [1, 1]), ([5, 7], [2, 3]), ([4, 6], [9, 9])] {
            let [num_rows, d_output] = shape;
            let expected: Vec<_> = (0..num_rows)
                .flat_map(|row| (0..d_output).map(move |column| at(row, column)))
                .collect();
            let mut output = vec![f32::NAN; expected.len()];
            OutputGrid::new(&mut output, d_output, tile)
                .into_tiles()
                .for_each(fill);
            assert_eq!(output, expected);
            output.fill(f32::NAN);
            let grid = OutputGrid::new(&mut output, d_output, tile);
            grid.into_par_tiles().for_each(fill);
            assert_eq!(output, expected);
        }
    }

    #[test]
    fn products_stay_in_their_tile() {
        let (input, weight) = ([1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 0.5, -1.0]);
        let mut output = [9.0; 12];
        let tiles = OutputGrid::new(&mut output, 6, [2, 2]).into_tiles();
        for mut tile in tiles.filter(|tile| tile.columns().start == 2) {
            tile.multiply(InputRows::new(&input, 2), &weight);
            tile.add_product(InputRows::new(&input, 2), &weight);
            tile.add_product_of(InputRows::new(&input, 2), &weight);
        }
        let [first, second] = [[8.0, -4.0], [19.0, -6.0]];
        assert_eq!(output[..6], [9.0, 9.0, first[0], first[1], 9.0, 9.0]);
        assert_eq!(output[6..], [9.0, 9.0, second[0], second[1], 9.0, 9.0]);
    }
}
