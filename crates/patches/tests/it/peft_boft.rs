//! Butterfly factors of PEFT, against its own way with permutation matrices, made as it makes them.

use burn::tensor::{Tensor, TensorData};
use nalgebra::DMatrix;
use overglaze_patches::{BaseLayer, LayerShape, Patch};

use crate::fixtures::{assert_close, load, matrix, message, wave};

/// Sums of at most 24 products of numbers below 1 in f32.
const TOLERANCE: f32 = 2e-5;

/// Two pairs of groups in the last factor.
const BLOCKS: [usize; 4] = [3, 8, 4, 4];
const SIDE: usize = 32;

/// Which row of the identity stands in each row of the factor's permutation: in groups of `2^factor` blocks, the even
/// runs of half a block before the odd ones. A single factor moves nothing.
fn permutation(
    side: usize,
    [num_factors, num_blocks, size, _]: [usize; 4],
    factor: usize,
) -> Vec<usize> {
    if num_factors == 1 {
        return (0..side).collect();
    }
    let (group, run) = (side / (num_blocks >> factor), size / 2);
    let runs = group / run;
    let order = (0..runs).step_by(2).chain((1..runs).step_by(2));
    let within: Vec<_> = order.flat_map(|at| at * run..(at + 1) * run).collect();
    let starts = (0..side).step_by(group);
    starts
        .flat_map(|start| within.iter().map(move |place| start + place))
        .collect()
}

fn permutation_matrices(blocks: [usize; 4]) -> Vec<DMatrix<f64>> {
    let side = blocks[1] * blocks[2];
    let matrix = |factor| {
        let places = permutation(side, blocks, factor);
        DMatrix::from_fn(side, side, |row, column| {
            f64::from(u8::from(places[row] == column))
        })
    };
    (0..blocks[0]).map(matrix).collect()
}

/// `M_m ⋯ M_1`, every one dense.
fn rotation(data: &TensorData, blocks: [usize; 4]) -> DMatrix<f64> {
    let [_, num_blocks, size, _] = blocks;
    let side = num_blocks * size;
    let values: Vec<f64> = data.iter().collect();
    let mut whole = DMatrix::identity(side, side);
    for (factor, order) in permutation_matrices(blocks).iter().enumerate() {
        let mut diagonal = DMatrix::zeros(side, side);
        for block in 0..num_blocks {
            let first = (factor * num_blocks + block) * size * size;
            let block_values = &values[first..first + size * size];
            let block_matrix = DMatrix::from_row_slice(size, size, block_values);
            let skew = (&block_matrix - block_matrix.transpose()) * 0.5;
            let identity = DMatrix::identity(size, size);
            let inverse = (&identity + &skew).try_inverse().expect("never singular");
            let start = block * size;
            let mut view = diagonal.view_mut((start, start), (size, size));
            view.copy_from(&((identity - skew) * inverse));
        }
        whole = order * diagonal * order.transpose() * whole;
    }
    whole
}

/// The values of a matrix in the order of its rows.
#[expect(clippy::cast_possible_truncation, reason = "the patch computes in f32")]
fn rows(matrix: &DMatrix<f64>) -> Vec<f32> {
    let transposed = matrix.transpose();
    transposed.iter().map(|value| *value as f32).collect()
}

fn delta(patch: &dyn Patch, shape: &LayerShape, weight: &Tensor<2>) -> Tensor<2> {
    patch.check(shape).expect("the patch fits");
    let base = BaseLayer {
        shape,
        weight: Some(weight),
        bias: None,
    };
    let delta = patch.delta_weight(&base).expect("values are there");
    delta.expect("it changes the weight")
}

#[test]
fn a_linear_layer_is_rotated_and_scaled() {
    for blocks in [
        BLOCKS,
        [1, 8, 4, 4],
        [2, 8, 4, 4],
        [1, 1, 3, 3],
        [4, 8, 2, 2],
    ] {
        let side = blocks[1] * blocks[2];
        let (turns, scale) = (wave(&blocks, 3), wave(&[5, 1], 4));
        let patch = load(&[("boft_R", turns.clone()), ("boft_s", scale.clone())]);
        let weight = matrix(wave(&[5, side], 5));
        let shape = LayerShape::linear(5, side);
        let found = delta(&*patch.expect("a patch"), &shape, &weight);
        let values: Vec<f64> = weight.to_data().iter().collect();
        let base = DMatrix::from_row_slice(5, side, &values);
        let mut changed = (rotation(&turns, blocks) * base.transpose()).transpose();
        for (row, factor) in scale.iter::<f64>().enumerate() {
            changed.row_mut(row).scale_mut(factor);
        }
        let expected = matrix(TensorData::new(rows(&(changed - base)), [5, side]));
        assert_close(found, expected, TOLERANCE);
    }
}

/// PEFT reads the weight's memory as `[fan_in, d_output]`, which is not its transpose.
#[test]
fn a_convolution_is_reread() {
    let blocks = [2, 6, 6, 6];
    let (turns, scale) = (wave(&blocks, 3), wave(&[1, 5], 4));
    let patch = load(&[("boft_R", turns.clone()), ("boft_s", scale.clone())]);
    let weight = matrix(wave(&[5, 36], 5));
    let shape = LayerShape::conv(&[5, 4, 3, 3], 1);
    let found = delta(&*patch.expect("a patch"), &shape, &weight);
    let values: Vec<f64> = weight.to_data().iter().collect();
    let base = DMatrix::from_row_slice(36, 5, &values);
    let mut changed = rotation(&turns, blocks) * &base;
    for (column, factor) in scale.iter::<f64>().enumerate() {
        changed.column_mut(column).scale_mut(factor);
    }
    let expected = matrix(TensorData::new(rows(&(changed - base)), [5, 36]));
    assert_close(found, expected, TOLERANCE);
}

#[test]
fn permutations_in_the_file_are_those_of_the_factors() {
    let matrices = permutation_matrices(BLOCKS);
    let values: Vec<f32> = matrices.iter().flat_map(rows).collect();
    let with = |values: Vec<f32>, shape: [usize; 3]| {
        load(&[
            ("boft_R", wave(&BLOCKS, 3)),
            ("boft_s", wave(&[5, 1], 4)),
            ("boft_P", TensorData::new(values, shape)),
        ])
    };
    let shape = [BLOCKS[0], SIDE, SIDE];
    with(values.clone(), shape).expect("PEFT's own permutations");
    let mut swapped = values.clone();
    swapped.swap(0, 1);
    let refused = message(with(swapped, shape));
    assert!(
        refused.contains("`boft_P` has other permutations than PEFT makes for blocks of 4"),
        "{refused}"
    );
    let flat = message(with(values, [BLOCKS[0] * SIDE, SIDE, 1]));
    assert!(
        flat.contains("`boft_P` has shape [96, 32, 1], expected [3, 32, 32]"),
        "{flat}"
    );
}

#[test]
fn factors_that_pair_no_blocks_are_refused() {
    for blocks in [[2, 3, 4, 4], [2, 4, 3, 3], [64, 4, 2, 2]] {
        let tensors = [("boft_R", wave(&blocks, 3)), ("boft_s", wave(&[5, 1], 4))];
        let refused = message(load(&tensors));
        assert!(refused.contains("factors of"), "{refused}");
    }
    let patch = load(&[("boft_R", wave(&BLOCKS, 3)), ("boft_s", wave(&[5, 1], 4))]);
    let patch = patch.expect("a patch");
    patch.check(&LayerShape::linear(5, SIDE)).expect("it fits");
    for shape in [LayerShape::linear(6, SIDE), LayerShape::linear(5, SIDE + 4)] {
        let refused = message(patch.check(&shape));
        assert!(refused.contains("5, 32"), "{refused}");
    }
}
