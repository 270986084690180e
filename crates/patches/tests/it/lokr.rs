//! The Kronecker product, of whole sides and of factors, and its scales.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use overglaze_patches::{LayerConfig, LayerShape, Patch, PatchError, registry};

use crate::{
    fixtures::{
        assert_close, delta_on, device, group, load, matrix, message, scalar, sidecar, wave,
    },
    formulas::{TOLERANCE, check, conv_inputs, reader, written},
};

/// `scale · w1 ⊗ w2` for `w1 [a, b]`, `w2 [c, d, kernel]` given by their elements.
fn kronecker(
    scale: f32,
    [[a, b], [c, d]]: [[usize; 2]; 2],
    kernel: usize,
    first: impl Fn(usize, usize) -> f32,
    second: impl Fn(usize, usize, usize) -> f32,
) -> Tensor<2> {
    written([a * c, b * d, kernel], |o, i, k| {
        scale * first(o / c, i / d) * second(o % c, i % d, k)
    })
}

#[test]
fn lokr_of_whole_sides() {
    let (w1, w2) = (wave(&[3, 2], 1), wave(&[4, 5], 2));
    let (first, second) = (reader(&w1), reader(&w2));
    let expected = kronecker(
        1.0,
        [[3, 2], [4, 5]],
        1,
        |a, b| first([a, b]),
        |c, d, _| second([c, d]),
    );
    let tensors = vec![("lokr_w1", w1), ("lokr_w2", w2)];
    let patch = load(&tensors).expect("a patch");
    assert!(sidecar(patch.as_ref(), matrix(wave(&[2, 10], 1))).is_some());
    check(&tensors, &LayerShape::linear(12, 10), &expected);
    check(&tensors, &LayerShape::conv(&[12, 10, 1, 1], 1), &expected);
}

#[test]
fn c15_lokr_with_a_kernel_takes_w1_without_one() {
    for kernel in [&[3][..], &[3, 2], &[2, 1, 3]] {
        let elements = kernel.iter().product();
        let (w1, w2) = (wave(&[3, 2], 1), wave(&[&[4, 5], kernel].concat(), 2));
        let (first, second) = (reader(&w1), reader(&wave(&[4, 5, elements], 2)));
        let sizes = [[3, 2], [4, 5]];
        let expected = kronecker(
            1.0,
            sizes,
            elements,
            |a, b| first([a, b]),
            |c, d, k| second([c, d, k]),
        );
        let layer = LayerShape::conv(&[&[12, 10], kernel].concat(), 1);
        let tensors = vec![("lokr_w1", w1), ("lokr_w2", w2)];
        let patch = load(&tensors).expect("a patch");
        let inputs = conv_inputs(&layer);
        assert!(
            inputs
                .iter()
                .all(|input| patch.sidecar_conv(input).is_some())
        );
        check(&tensors, &layer, &expected);
    }
}

#[test]
fn lokr_of_factors() {
    let [w1_a, w1_b] = [wave(&[3, 2], 1), wave(&[2, 2], 2)];
    let [w2_a, w2_b] = [wave(&[4, 3], 3), wave(&[3, 5], 4)];
    let product = |a: &TensorData, b: &TensorData, rank| {
        let (a, b) = (reader(a), reader(b));
        move |row, column| -> f32 { (0..rank).map(|r| a([row, r]) * b([r, column])).sum() }
    };
    let (first, second) = (product(&w1_a, &w1_b, 2), product(&w2_a, &w2_b, 3));
    // The rank is that of the second side.
    let expected = kronecker(1.5 / 3.0, [[3, 2], [4, 5]], 1, first, |c, d, _| {
        second(c, d)
    });
    let tensors = vec![
        ("lokr_w1_a", w1_a),
        ("lokr_w1_b", w1_b),
        ("lokr_w2_a", w2_a),
        ("lokr_w2_b", w2_b),
        ("alpha", scalar(1.5)),
    ];
    check(&tensors, &LayerShape::linear(12, 10), &expected);
    // The kernel flattened into the columns of w2_b.
    check(&tensors, &LayerShape::conv(&[12, 2, 5], 1), &expected);
}

#[test]
fn lokr_with_a_middle_factor() {
    let (w1, t2) = (wave(&[3, 2], 1), wave(&[2, 3, 3, 2], 5));
    let [w2_a, w2_b] = [wave(&[2, 4], 3), wave(&[3, 5], 4)];
    let (a, b, first) = (reader(&w2_a), reader(&w2_b), reader(&w1));
    let t = reader(&t2);
    let second = |c, d, k: usize| -> f32 {
        let pairs = (0..2).flat_map(|m| (0..3).map(move |n| (m, n)));
        pairs
            .map(|(m, n)| a([m, c]) * t([m, n, k / 2, k % 2]) * b([n, d]))
            .sum()
    };
    let expected = kronecker(1.5 / 3.0, [[3, 2], [4, 5]], 6, |a, b| first([a, b]), second);
    let tensors = vec![
        ("lokr_w1", w1),
        ("lokr_w2_a", w2_a),
        ("lokr_w2_b", w2_b),
        ("lokr_t2", t2),
        ("alpha", scalar(1.5)),
    ];
    check(&tensors, &LayerShape::conv(&[12, 10, 3, 2], 1), &expected);
}

/// PEFT scales whole sides by its configuration; a file's own scale goes before all.
#[test]
fn b19_lokr_of_whole_sides_in_a_peft_file() {
    let product = delta_on(
        lokr_in_peft(None, &[]).expect("a patch").as_ref(),
        &LayerShape::linear(12, 10),
    );
    for (config, extra, scale) in [
        ((8.0, Some(4), false), vec![], 2.0),
        ((8.0, Some(4), true), vec![], 4.0),
        (
            (8.0, Some(4), false),
            vec![("alpha", scalar(f32::INFINITY))],
            2.0,
        ),
        ((8.0, Some(4), false), vec![("scale", scalar(0.25))], 0.25),
    ] {
        let patch = lokr_in_peft(Some(config), &extra).expect("a patch");
        let found = delta_on(patch.as_ref(), &LayerShape::linear(12, 10));
        assert_close(found, product.clone().mul_scalar(scale), TOLERANCE);
    }
    let found = message(lokr_in_peft(Some((8.0, None, false)), &[]));
    let expected = "layer `layer`: the configuration has an alpha and no rank `r`, expected both for factors that \
                    are whole";
    assert_eq!(found, expected);
}

/// As for the other kinds, whose alpha comes the same way.
#[test]
fn an_alpha_of_the_configuration_that_overflows_is_refused() {
    for (alpha, read) in [
        (1e300, "inf"),
        (1e39, "inf"),
        (-1e39, "-inf"),
        (f64::NAN, "NaN"),
    ] {
        let found = message(lokr_in_peft(Some((alpha, Some(4), false)), &[]));
        let expected = format!("layer `layer`: `alpha` is {read}, expected a finite number");
        assert_eq!(found, expected);
    }
    let found = message(lokr_in_peft(Some((8.0, Some(0), false)), &[]));
    assert_eq!(found, "layer `layer`: the rank is 0");
}

fn lokr_in_peft(
    config: Option<(f64, Option<usize>, bool)>,
    extra: &[(&'static str, TensorData)],
) -> Result<Arc<dyn Patch>, PatchError> {
    let tensors = [
        &[("lokr_w1", wave(&[3, 2], 1)), ("lokr_w2", wave(&[4, 5], 2))],
        extra,
    ];
    let mut group = group(&tensors.concat());
    group.config = config.map(|(alpha, rank, use_rslora)| {
        let mut config = LayerConfig::default();
        (config.alpha, config.rank, config.use_rslora) = (Some(alpha), rank, use_rslora);
        config
    });
    registry::load(group, &device())
}
