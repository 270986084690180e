//! The Hadamard product of two low-rank matrices.

use burn::tensor::TensorData;
use overglaze_patches::LayerShape;

use crate::{
    fixtures::{load, scalar, wave},
    formulas::{check, reader, written},
};

#[test]
fn loha() {
    let factor = |shape: &[usize], seed| wave(shape, seed);
    // Ranks that are worth thin factors and ranks that are not.
    for [first, second] in [[1, 2], [3, 2]] {
        let [a1, b1] = [factor(&[10, first], 1), factor(&[first, 8], 2)];
        let [a2, b2] = [factor(&[10, second], 3), factor(&[second, 8], 4)];
        let readers = [reader(&a1), reader(&b1), reader(&a2), reader(&b2)];
        let scale = 3.0 / first as f32;
        let expected = written([10, 8, 1], |o, i, _| {
            let product = |a: usize, rank: usize| -> f32 {
                (0..rank)
                    .map(|r| readers[a]([o, r]) * readers[a + 1]([r, i]))
                    .sum()
            };
            scale * product(0, first) * product(2, second)
        });
        let tensors = vec![
            ("hada_w1_a", a1),
            ("hada_w1_b", b1),
            ("hada_w2_a", a2),
            ("hada_w2_b", b2),
            ("alpha", scalar(3.0)),
        ];
        let is_thin = load(&tensors).expect("a patch").low_rank().is_some();
        assert_eq!(is_thin, first == 1);
        check(&tensors, &LayerShape::linear(10, 8), &expected);
        // Kernels stand flattened in such files.
        check(&tensors, &LayerShape::conv(&[10, 2, 2, 2], 1), &expected);
        check(&tensors, &LayerShape::conv(&[10, 2, 2, 2], 2), &expected);
    }
}

#[test]
fn loha_with_middle_factors() {
    let [a1, b1, t1] = [wave(&[2, 6], 1), wave(&[2, 5], 2), wave(&[2, 2, 3, 2], 3)];
    let [a2, b2, t2] = [wave(&[2, 6], 4), wave(&[2, 5], 5), wave(&[2, 2, 3, 2], 6)];
    let half = |a: &TensorData, b: &TensorData, t: &TensorData| {
        let (a, b) = (reader(a), reader(b));
        let t = reader(t);
        move |o, i, k: usize| -> f32 {
            let pairs = (0..2).flat_map(|m| (0..2).map(move |n| (m, n)));
            pairs
                .map(|(m, n)| a([m, o]) * t([m, n, k / 2, k % 2]) * b([n, i]))
                .sum()
        }
    };
    let (first, second) = (half(&a1, &b1, &t1), half(&a2, &b2, &t2));
    let expected = written([6, 5, 6], |o, i, k| 2.0 * first(o, i, k) * second(o, i, k));
    let tensors = vec![
        ("hada_w1_a", a1),
        ("hada_w1_b", b1),
        ("hada_t1", t1),
        ("hada_w2_a", a2),
        ("hada_w2_b", b2),
        ("hada_t2", t2),
        ("alpha", scalar(4.0)),
    ];
    check(&tensors, &LayerShape::conv(&[6, 5, 3, 2], 1), &expected);
}
