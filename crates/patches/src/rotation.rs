//! Square blocks along a diagonal, the rotations made of them, and their products with a weight.
//!
//! Rotations are made on the host in f64, once, when a patch is read: the blocks are small. What a patch keeps is
//! their turn `R − I` in f32, as the residual is a product with that and a rotation is near the identity.
//!
//! Cayley transform of a skew-symmetric Q: `(I + Q)(I − Q)⁻¹`. Its series `I + 2Q + 2Q² + …` cut after some terms is
//! the one of Qiu et al., "Orthogonal Finetuning Made Scalable", 2025, section 3.2.

use burn::tensor::{Device, Tensor, TensorData};
use nalgebra::DMatrix;

use crate::{LayerShape, Operator, PatchError, TensorGroup};

/// Square blocks `[num_blocks, size, size]` on the host.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    size: usize,
    blocks: Vec<DMatrix<f64>>,
}

impl Blocks {
    /// Removes the blocks under `key`: their tensor's last two axes, however many are before them.
    ///
    /// # Errors
    /// As [`TensorGroup::take`], or [`PatchError::Inconsistent`] for blocks that are not square or have no values.
    pub(crate) fn take(group: &mut TensorGroup, key: &str) -> Result<Self, PatchError> {
        let data = group.take_floats(key)?;
        let shape = data.shape().to_vec();
        let (blocks, size) = match shape.as_slice() {
            [blocks @ .., rows, columns] if rows == columns => (blocks, *rows),
            _ => {
                let why = format!("`{key}` has shape {shape:?}, expected square blocks");
                return Err(group.inconsistent(why));
            }
        };
        if size == 0 || blocks.contains(&0) {
            return Err(group.inconsistent(format!("`{key}` has shape {shape:?}, without values")));
        }
        check_work(group, key, size, data.num_elements() / size / size)?;
        let values: Vec<f64> = data.iter().collect();
        let blocks = values
            .chunks_exact(size * size)
            .map(|block| DMatrix::from_row_slice(size, size, block));
        Ok(Self {
            size,
            blocks: blocks.collect(),
        })
    }

    /// Removes the strict upper triangles `[num_blocks, size · (size − 1) / 2]` under `key`, row by row, as the
    /// skew-symmetric blocks `U − Uᵀ`.
    ///
    /// # Errors
    /// As [`take`](Self::take), or [`PatchError::Inconsistent`] for rows that are no triangle.
    pub(crate) fn take_triangles(group: &mut TensorGroup, key: &str) -> Result<Self, PatchError> {
        let data = group.take_floats(key)?;
        let shape = data.shape().to_vec();
        let triangles = match shape.as_slice() {
            [num_blocks, columns] if *num_blocks > 0 => {
                triangle_size(*columns).map(|size| (size, *columns))
            }
            _ => None,
        };
        let Some((size, columns)) = triangles else {
            let why = format!(
                "`{key}` has shape {shape:?}, expected the upper triangles of blocks, \
                 [blocks, size · (size − 1) / 2]"
            );
            return Err(group.inconsistent(why));
        };
        check_work(group, key, size, data.num_elements() / columns)?;
        let values: Vec<f64> = data.iter().collect();
        let blocks = values.chunks_exact(columns);
        Ok(Self {
            size,
            blocks: blocks.map(|values| skew(size, values)).collect(),
        })
    }

    pub(crate) fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Rows and columns of a block.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Frobenius norm of all blocks together.
    pub(crate) fn norm(&self) -> f64 {
        let squares = self.blocks.iter().map(DMatrix::norm_squared);
        squares.sum::<f64>().sqrt()
    }

    /// Mean of the diagonals.
    pub(crate) fn mean_diagonal(&self) -> f64 {
        let sum: f64 = self.blocks.iter().map(DMatrix::trace).sum();
        sum / (self.blocks.len() * self.size) as f64
    }

    /// Every block through `change`.
    pub(crate) fn map(self, change: impl Fn(DMatrix<f64>) -> DMatrix<f64>) -> Self {
        Self {
            size: self.size,
            blocks: self.blocks.into_iter().map(change).collect(),
        }
    }

    /// `B − Bᵀ`, times `factor`.
    pub(crate) fn skewed(self, factor: f64) -> Self {
        self.map(|block| (&block - block.transpose()) * factor)
    }

    /// All blocks times one factor that brings their common norm to `limit`, where it is larger.
    pub(crate) fn limited(self, limit: f64) -> Self {
        let norm = self.norm();
        if norm <= limit {
            return self;
        }
        self.map(|block| block * (limit / norm))
    }

    /// Every block times a factor of its own that brings its norm to `limit`, where it is larger.
    pub(crate) fn limited_each(self, limit: f64) -> Self {
        self.map(|block| match block.norm() {
            norm if norm > limit => block * (limit / norm),
            _ => block,
        })
    }

    /// `(I + Q)(I − Q)⁻¹ − I` of skew-symmetric blocks; never singular, as their eigenvalues are imaginary.
    pub(crate) fn cayley_turn(self) -> Self {
        self.map(|skew| {
            let identity = DMatrix::identity(skew.nrows(), skew.ncols());
            let twice = &skew * 2.0;
            let solved = (identity - skew).lu().solve(&twice);
            solved.unwrap_or_else(|| twice.map(|_| f64::NAN))
        })
    }

    /// The blocks as f32 `[num_blocks, size, size]` on `device`.
    ///
    /// # Errors
    /// [`PatchError::Inconsistent`] when the numbers under `key` led to some that are not finite.
    pub(crate) fn to_tensor(
        &self,
        group: &TensorGroup,
        key: &str,
        device: &Device,
    ) -> Result<Tensor<3>, PatchError> {
        let shape = [self.blocks.len(), self.size, self.size];
        // A transposed matrix in nalgebra's order of columns is the matrix in the order of rows.
        let values: Vec<f32> = self
            .blocks
            .iter()
            .flat_map(|block| block.transpose().iter().copied().collect::<Vec<_>>())
            .map(narrow)
            .collect();
        if !values.iter().all(|value| value.is_finite()) {
            let why = format!("the numbers in `{key}` are too large to make a rotation of");
            return Err(group.inconsistent(why));
        }
        Ok(Tensor::from_data(TensorData::new(values, shape), device))
    }
}

/// Removes the blocks of butterfly factors `[num_factors, num_blocks, size, size]` under `key`, and says how many
/// factors they are.
///
/// # Errors
/// As [`Blocks::take`], or [`PatchError::Inconsistent`] for blocks that the factors cannot pair.
pub(crate) fn butterfly_factors(
    group: &mut TensorGroup,
    key: &str,
) -> Result<(Blocks, usize), PatchError> {
    let num_factors = group.dims(key).first().copied().unwrap_or_default();
    let blocks = Blocks::take(group, key)?;
    let (size, num_blocks) = (blocks.size(), blocks.num_blocks() / num_factors.max(1));
    // The last factor swaps the two halves of runs of 2^(num_factors − 1) blocks.
    let longest = u32::try_from(num_factors)
        .ok()
        .and_then(|factors| 2_usize.checked_pow(factors.saturating_sub(1)));
    let is_paired = num_factors == 1 || size % 2 == 0;
    if is_paired && longest.is_some_and(|longest| num_blocks % longest == 0) {
        return Ok((blocks, num_factors));
    }
    let why = format!(
        "`{key}` has {num_factors} factors of {num_blocks} blocks of size {size}, expected an even size \
         and blocks in a multiple of 2^(factors − 1)"
    );
    Err(group.inconsistent(why))
}

/// `blockdiag(blocks) · weight`: blocks `[num_blocks, size, size]`, weight `[num_blocks · size, fan_in]`.
pub(crate) fn blocks_times_rows(blocks: &Tensor<3>, weight: &Tensor<2>) -> Tensor<2> {
    let [num_blocks, size, _] = blocks.dims();
    let [rows, fan_in] = weight.dims();
    let weight = weight.clone().reshape([num_blocks, size, fan_in]);
    blocks.clone().matmul(weight).reshape([rows, fan_in])
}

/// `weight · blockdiag(blocks)`: weight `[d_output, num_blocks · size]`; one block stands for as many as fit.
pub(crate) fn columns_times_blocks(weight: &Tensor<2>, blocks: &Tensor<3>) -> Tensor<2> {
    let [num_blocks, size, _] = blocks.dims();
    let [rows, fan_in] = weight.dims();
    let parts = fan_in / size;
    if num_blocks == 1 {
        let block = blocks.clone().reshape([size, size]);
        let columns = weight.clone().reshape([rows * parts, size]);
        return columns.matmul(block).reshape([rows, fan_in]);
    }
    let columns = weight.clone().reshape([rows, parts, size]).swap_dims(0, 1);
    let product = columns.matmul(blocks.clone());
    product.swap_dims(0, 1).reshape([rows, fan_in])
}

/// Refuses layers whose weight a rotation of its features has no meaning on.
pub(crate) fn check_rotates(kind: &str, layer: &LayerShape) -> Result<(), PatchError> {
    match layer.operator() {
        Operator::Linear | Operator::Conv { .. } => Ok(()),
        operator => Err(PatchError::NoMeaning {
            kind: kind.into(),
            operator,
            why: "it rotates the features of a linear layer or a convolution".into(),
        }),
    }
}

/// The size whose strict upper triangle has `num_values` values.
fn triangle_size(num_values: usize) -> Option<usize> {
    let product = num_values.checked_mul(2)?;
    let size = product.isqrt() + 1;
    (num_values > 0 && size.checked_mul(size - 1)? == product).then_some(size)
}

fn skew(size: usize, upper: &[f64]) -> DMatrix<f64> {
    let places = (0..size).flat_map(|row| (row + 1..size).map(move |column| (row, column)));
    let mut matrix = DMatrix::zeros(size, size);
    for (place, value) in places.zip(upper) {
        let (row, column) = place;
        matrix[(row, column)] = *value;
        matrix[(column, row)] = -value;
    }
    matrix
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "residuals are f32; what does not fit is refused"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// The work on a block grows with the cube of its size; a small file must not ask for hours.
fn check_work(
    group: &TensorGroup,
    key: &str,
    size: usize,
    num_blocks: usize,
) -> Result<(), PatchError> {
    let expected = if size > MAX_SIZE {
        format!("at most {MAX_SIZE} rows")
    } else if num_blocks.saturating_mul(size.pow(3)) > MAX_WORK {
        format!("at most {} of them", MAX_WORK / size.pow(3))
    } else {
        return Ok(());
    };
    Err(group.inconsistent(format!(
        "`{key}` has {num_blocks} blocks of {size} rows, expected {expected}; use an adapter with smaller blocks, or one \
         merged into its model"
    )))
}

/// Trainers make blocks of at most 1,920 rows, an eighth of the widest layers.
const MAX_SIZE: usize = 2048;
/// Multiplications for the rotations of one layer, the cube of a block's size each: eight blocks of 1,920 rows, for the
/// 15,360 inputs of FLUX.1's widest layers, take 5.7e10.
const MAX_WORK: usize = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_layers_blocks_may_be_rotated_and_few_wider() {
        let check = |num_blocks, size| check_work(&TensorGroup::default(), "k", size, num_blocks);
        // Layers of 3,072, 12,288 and 15,360 rows; butterfly factors of the second.
        for (num_blocks, size) in [
            (3, 1024),
            (8, 1536),
            (24, 512),
            (12288 / 4 * 8, 4),
            (8, 1920),
            (6, 2048),
        ] {
            assert!(check(num_blocks, size).is_ok(), "{num_blocks}, {size}");
        }
        for (num_blocks, size) in [(7, 2048), (9, 1920), (usize::MAX, 2), (1, 2049)] {
            assert!(check(num_blocks, size).is_err(), "{num_blocks}, {size}");
        }
    }
}
