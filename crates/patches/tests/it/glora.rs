//! Generalized low-rank adaptation, in both layouts.

use burn::tensor::Tensor;
use overglaze_patches::LayerShape;

use crate::{
    fixtures::{assert_close, delta_on, device, load, matrix, scalar, wave},
    formulas::{TOLERANCE, on_base, reader, written},
};

#[test]
fn glora() {
    let [a1, a2] = [wave(&[5, 2], 1), wave(&[2, 5], 2)];
    let [b1, b2] = [wave(&[6, 2], 3), wave(&[2, 5, 3, 1], 4)];
    let base = wave(&[6, 5, 3, 1], 5);
    let (a1_at, a2_at, b1_at) = (reader(&a1), reader(&a2), reader(&b1));
    let (b2_at, base_at) = (reader(&b2), reader(&base));
    let expected = written([6, 5, 3], |o, i, k| {
        let through = (0..5).flat_map(|j| (0..2).map(move |r| (j, r)));
        let changed = through.map(|(j, r)| base_at([o, j, k, 0]) * a1_at([j, r]) * a2_at([r, i]));
        let residual = (0..2).map(|r| b1_at([o, r]) * b2_at([r, i, k, 0]));
        0.5 * (changed.sum::<f32>() + residual.sum::<f32>())
    });
    let layer = LayerShape::conv(&[6, 5, 3, 1], 1);
    let weight = matrix(wave(&[6, 15], 5));
    let one = |key, shape: &[usize], seed| (key, wave(shape, seed));
    for tensors in [
        vec![
            one("a1.weight", &[5, 2, 1, 1], 1),
            one("a2.weight", &[2, 5, 1, 1], 2),
            one("b1.weight", &[6, 2, 1, 1], 3),
            one("b2.weight", &[2, 5, 3, 1], 4),
            ("alpha", scalar(1.0)),
        ],
        // Early files.
        vec![
            one("a2.weight", &[5, 2, 1, 1], 1),
            one("a1.weight", &[2, 5, 1, 1], 2),
            one("b2.weight", &[6, 2, 1, 1], 3),
            one("b1.weight", &[2, 5, 3, 1], 4),
            ("alpha", scalar(1.0)),
        ],
    ] {
        let patch = load(&tensors).expect("a patch");
        let found = on_base(patch.as_ref(), &layer, &weight, None);
        assert_close(found, expected.clone(), TOLERANCE);
    }
}

/// `bm` between the factors of the residual holds the kernel.
#[test]
fn glora_with_a_middle_factor() {
    let patch = load(&[
        ("a1.weight", wave(&[5, 2, 1, 1], 1)),
        ("a2.weight", wave(&[2, 5, 1, 1], 2)),
        ("b1.weight", wave(&[6, 2, 1, 1], 3)),
        ("bm.weight", wave(&[2, 2, 3, 1], 6)),
        ("b2.weight", wave(&[2, 5, 1, 1], 4)),
    ])
    .expect("a patch");
    let residual = load(&[
        ("lora_up.weight", wave(&[6, 2], 3)),
        ("lora_mid.weight", wave(&[2, 2, 3, 1], 6)),
        ("lora_down.weight", wave(&[2, 5], 4)),
    ])
    .expect("a patch");
    let layer = LayerShape::conv(&[6, 5, 3, 1], 1);
    let zeros = Tensor::zeros([6, 15], &device());
    let found = on_base(patch.as_ref(), &layer, &zeros, None);
    assert_close(found, delta_on(residual.as_ref(), &layer), TOLERANCE);
}

/// The four factors agree on one layout where the rank is above the inputs.
#[test]
fn a_rank_above_the_inputs_is_no_other_layout() {
    let names = [
        ["a1.weight", "a2.weight", "b1.weight", "b2.weight"],
        ["a2.weight", "a1.weight", "b2.weight", "b1.weight"],
    ];
    let shapes: [[usize; 2]; 4] = [[3, 5], [5, 3], [6, 5], [5, 3]];
    let factor = |index: usize| wave(&shapes[index], index + 1);
    let weight = matrix(wave(&[6, 3], 9));
    let through = matrix(factor(0)).matmul(matrix(factor(1)));
    let expected = weight.clone().matmul(through) + matrix(factor(2)).matmul(matrix(factor(3)));
    for names in names {
        let tensors: Vec<_> = (0..4).map(|index| (names[index], factor(index))).collect();
        let patch = load(&tensors).expect("a patch");
        let found = on_base(patch.as_ref(), &LayerShape::linear(6, 3), &weight, None);
        assert_close(found, expected.clone(), TOLERANCE);
    }
}
