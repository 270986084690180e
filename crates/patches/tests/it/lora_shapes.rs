//! Low-rank factors with kernels, middle factors, and of embeddings.

use overglaze_patches::LayerShape;

use crate::{
    fixtures::{scalar, wave},
    formulas::{check, reader, written},
};

#[test]
fn lora_with_a_kernel() {
    for kernel in [&[3][..], &[3, 2], &[2, 1, 3], &[1, 1]] {
        let elements = kernel.iter().product();
        let down = wave(&[&[4, 5], kernel].concat(), 2);
        let up = wave(&[&[6, 4], vec![1; kernel.len()].as_slice()].concat(), 1);
        let (up_at, down_at) = (
            reader(&wave(&[6, 4], 1)),
            reader(&wave(&[4, 5, elements], 2)),
        );
        let expected = written([6, 5, elements], |o, i, k| {
            (0..4)
                .map(|r| 0.5 * up_at([o, r]) * down_at([r, i, k]))
                .sum()
        });
        let tensors = vec![
            ("lora_up.weight", up),
            ("lora_down.weight", down),
            ("alpha", scalar(2.0)),
        ];
        let layer = LayerShape::conv(&[&[6, 5], kernel].concat(), 1);
        check(&tensors, &layer, &expected);
    }
}

/// The middle factor may be between two ranks.
#[test]
fn c10_lora_with_a_middle_factor() {
    for kernel in [&[3][..], &[3, 2], &[2, 1, 3]] {
        let elements: usize = kernel.iter().product();
        let ones = vec![1; kernel.len()];
        let (up, down) = (wave(&[6, 3], 1), wave(&[2, 5], 2));
        let mid = wave(&[3, 2, elements], 7);
        let (up_at, mid_at, down_at) = (reader(&up), reader(&mid), reader(&down));
        let expected = written([6, 5, elements], |o, i, k| {
            let pairs = (0..3).flat_map(|m| (0..2).map(move |n| (m, n)));
            let terms = pairs.map(|(m, n)| up_at([o, m]) * mid_at([m, n, k]) * down_at([n, i]));
            // alpha over the rows of down
            1.0 / 2.0 * terms.sum::<f32>()
        });
        let tensors = vec![
            (
                "lora_up.weight",
                wave(&[&[6, 3], ones.as_slice()].concat(), 1),
            ),
            ("lora_mid.weight", wave(&[&[3, 2], kernel].concat(), 7)),
            (
                "lora_down.weight",
                wave(&[&[2, 5], ones.as_slice()].concat(), 2),
            ),
            ("alpha", scalar(1.0)),
        ];
        let layer = LayerShape::conv(&[&[6, 5], kernel].concat(), 1);
        check(&tensors, &layer, &expected);
    }
}

#[test]
fn lora_of_an_embedding() {
    let (a, b) = (wave(&[4, 30], 1), wave(&[6, 4], 2));
    let (a_at, b_at) = (reader(&a), reader(&b));
    let expected = written([30, 6, 1], |token, feature, _| {
        (0..4)
            .map(|r| 0.5 * b_at([feature, r]) * a_at([r, token]))
            .sum()
    });
    let tensors = vec![
        ("lora_embedding_A", a),
        ("lora_embedding_B", b),
        ("alpha", scalar(2.0)),
    ];
    check(&tensors, &LayerShape::embedding(30, 6), &expected);
}
