//! The conformance test passes every kind of the crate.

use burn::tensor::TensorData;
use overglaze_patches::{LayerShape, conformance};

use crate::fixtures::{device, load, scalar, wave};

pub(crate) fn of(shapes: &[(&'static str, &[usize])]) -> Vec<(&'static str, TensorData)> {
    let shapes = shapes.iter().enumerate();
    shapes
        .map(|(seed, (key, shape))| (*key, wave(shape, seed + 1)))
        .collect()
}

/// Passes the patch of `tensors` on `fitting`; it must refuse a larger layer, and a norm.
fn conforms(tensors: &[(&'static str, TensorData)], fitting: &[LayerShape]) {
    let patch = load(tensors).expect("a patch");
    let unfitting = [LayerShape::linear(97, 101), LayerShape::norm(13)];
    let answer = conformance::check(&patch, fitting, &unfitting, &device());
    if let Err(nonconformance) = answer {
        panic!("{nonconformance}");
    }
}

pub(crate) const LINEAR: [usize; 2] = [8, 6];

pub(crate) fn linear() -> [LayerShape; 1] {
    [LayerShape::linear(LINEAR[0], LINEAR[1])]
}

pub(crate) fn conv() -> [LayerShape; 1] {
    [LayerShape::conv(&[8, 6, 3, 3], 1)]
}

#[test]
fn low_rank_kinds() {
    let lora = of(&[("lora_up.weight", &[8, 2]), ("lora_down.weight", &[2, 6])]);
    conforms(
        &lora,
        &[LayerShape::linear(8, 6), LayerShape::embedding(8, 6)],
    );
    let biased = [lora.clone(), of(&[("lora_up.bias", &[8])])].concat();
    conforms(&biased, &linear());
    conforms(
        &of(&[
            ("lora_up.weight", &[8, 2, 1, 1]),
            ("lora_down.weight", &[2, 6, 3, 3]),
        ]),
        &conv(),
    );
    conforms(
        &of(&[
            ("lora_up.weight", &[8, 2, 1, 1]),
            ("lora_down.weight", &[2, 6, 1, 1]),
            ("lora_mid.weight", &[2, 2, 3, 3]),
        ]),
        &conv(),
    );
}

#[test]
fn products() {
    let loha = of(&[
        ("hada_w1_a", &[8, 2]),
        ("hada_w1_b", &[2, 6]),
        ("hada_w2_a", &[8, 2]),
        ("hada_w2_b", &[2, 6]),
    ]);
    conforms(&loha, &linear());
    conforms(
        &of(&[("lokr_w1", &[2, 3]), ("lokr_w2", &[4, 2])]),
        &linear(),
    );
    conforms(
        &of(&[("lokr_w1", &[2, 3]), ("lokr_w2", &[4, 2, 3, 3])]),
        &conv(),
    );
    let glora = of(&[
        ("a1.weight", &[6, 2]),
        ("a2.weight", &[2, 6]),
        ("b1.weight", &[8, 2]),
        ("b2.weight", &[2, 6]),
    ]);
    conforms(&glora, &linear());
    for inner in [loha, glora] {
        let dora = [inner, of(&[("dora_scale", &[8, 1])])].concat();
        conforms(&dora, &linear());
    }
}

#[test]
fn decomposed_and_scaled() {
    let lora = of(&[("lora_up.weight", &[8, 2]), ("lora_down.weight", &[2, 6])]);
    for (key, shape) in [
        ("dora_scale", &[8, 1][..]),
        ("dora_scale", &[1, 6]),
        ("dora_scale", &[8]),
        ("lora_magnitude_vector", &[8]),
    ] {
        conforms(&[lora.clone(), of(&[(key, shape)])].concat(), &linear());
    }
    for (flag, length) in [(0.0, 8), (1.0, 6)] {
        let ia3 = [
            of(&[("weight", &[length])]),
            vec![("on_input", scalar(flag))],
        ];
        conforms(&ia3.concat(), &[linear(), conv()].concat());
    }
    conforms(&of(&[("ia3_l", &[8, 1])]), &linear());
    conforms(&of(&[("ia3_l", &[1, 6])]), &linear());
    for length in [8, 6] {
        conforms(&of(&[("ia3_l", &[1, length, 1, 1])]), &conv());
    }
    let embedding = of(&[
        ("lora_embedding_A", &[2, 8]),
        ("lora_embedding_B", &[6, 2]),
        ("lora_magnitude_vector", &[6]),
    ]);
    conforms(&embedding, &[LayerShape::embedding(8, 6)]);
}

#[test]
fn rotations() {
    let both = [linear(), conv()].concat();
    conforms(&of(&[("oft_blocks", &[2, 4, 4])]), &both);
    conforms(
        &of(&[("oft_blocks", &[2, 4, 4]), ("rescale", &[8, 1])]),
        &both,
    );
    conforms(&of(&[("oft_diag", &[4, 2, 2])]), &both);
    conforms(&of(&[("oft_blocks", &[2, 2, 4, 4])]), &both);
    conforms(
        &of(&[("oft_blocks", &[2, 2, 4, 4]), ("rescale", &[8, 1])]),
        &both,
    );
    conforms(&of(&[("oft_R.weight", &[2, 3])]), &linear());
    conforms(&of(&[("oft_r", &[3, 2, 2]), ("oft_s", &[8, 1])]), &linear());
    conforms(
        &of(&[("boft_R", &[1, 3, 2, 2]), ("boft_s", &[8, 1])]),
        &linear(),
    );
    conforms(
        &of(&[("boft_R", &[1, 9, 6, 6]), ("boft_s", &[1, 8])]),
        &conv(),
    );
}

#[test]
fn differences_and_replacements() {
    conforms(&of(&[("diff", &[8, 6])]), &linear());
    conforms(&of(&[("diff", &[8, 6]), ("diff_b", &[8])]), &linear());
    conforms(&of(&[("set_weight", &[8, 6])]), &linear());
    let patch = load(&of(&[("w_norm", &[8]), ("b_norm", &[8])])).expect("a patch");
    let unfitting = [LayerShape::norm(9), LayerShape::linear(97, 101)];
    conformance::check(&patch, &[LayerShape::norm(8)], &unfitting, &device()).expect("a norm");
}
