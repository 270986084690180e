//! What kinds say to files that contradict themselves and to layers they have no meaning on.

use burn::tensor::TensorData;
use overglaze_patches::{BaseLayer, LayerShape, Operator};

use crate::fixtures::{load, message, refusal, scalar, wave};

type Tensors = Vec<(&'static str, TensorData)>;

fn of(shapes: &[(&'static str, &[usize])]) -> Tensors {
    shapes
        .iter()
        .enumerate()
        .map(|(seed, (key, shape))| (*key, wave(shape, seed)))
        .collect()
}

fn lora(up: &[usize], down: &[usize]) -> Tensors {
    of(&[("lora_up.weight", up), ("lora_down.weight", down)])
}

fn loha(out: usize, fan_in: usize) -> Tensors {
    of(&[
        ("hada_w1_a", &[out, 2]),
        ("hada_w1_b", &[2, fan_in]),
        ("hada_w2_a", &[out, 2]),
        ("hada_w2_b", &[2, fan_in]),
    ])
}

fn lokr(w1: &[usize], w2: &[usize]) -> Tensors {
    of(&[("lokr_w1", w1), ("lokr_w2", w2)])
}

fn glora(d_output: usize, d_input: usize) -> Tensors {
    of(&[
        ("a1.weight", &[d_input, 2]),
        ("a2.weight", &[2, d_input]),
        ("b1.weight", &[d_output, 2]),
        ("b2.weight", &[2, d_input]),
    ])
}

/// Tensors, and what the error says of them.
fn check_contradictions(cases: Vec<(Tensors, &str)>) {
    for (tensors, why) in cases {
        assert_eq!(message(load(&tensors)), format!("layer `layer`: {why}"));
    }
}

fn with(tensors: Tensors, extra: Tensors) -> Tensors {
    [tensors, extra].concat()
}

fn reshape(sizes: Vec<i64>) -> Tensors {
    let shape = [sizes.len()];
    vec![("reshape_weight", TensorData::new(sizes, shape))]
}

#[test]
fn low_rank_factors_that_contradict_each_other() {
    check_contradictions(vec![
        (
            with(
                lora(&[6, 2], &[3, 5]),
                of(&[("lora_mid.weight", &[2, 2, 3, 3])]),
            ),
            "`lora_mid.weight` has 2 rows of 18 elements, expected [2, 3, kernel…] between `lora_up.weight` and \
             `lora_down.weight`",
        ),
        (
            with(
                lora(&[6, 2], &[2, 5]),
                of(&[("lora_mid.weight", &[2, 2, 0])]),
            ),
            "`lora_mid.weight` has 2 rows of 0 elements, expected [2, 2, kernel…] between `lora_up.weight` and \
             `lora_down.weight`",
        ),
        (
            with(
                lora(&[6, 2], &[2, 5, 3, 3]),
                of(&[("lora_mid.weight", &[2, 2, 3, 3])]),
            ),
            "tensor `lora_down.weight` has shape [2, 5, 3, 3], expected 2 dimensions, or more where the others are \
             of size 1",
        ),
        (
            with(lora(&[6, 2], &[2, 5]), reshape(vec![6, 7])),
            "`reshape_weight` is [6, 7], but `lora_up.weight` and `lora_down.weight` are for [6, 5]",
        ),
        (
            with(lora(&[6, 2], &[2, 5]), reshape(vec![6, -5])),
            "`reshape_weight` holds a negative number",
        ),
        (
            with(lora(&[6, 2], &[2, 5]), of(&[("reshape_weight", &[2])])),
            "`reshape_weight` has dtype f32, expected a signed integer dtype",
        ),
        (
            of(&[
                ("lora_embedding_A", &[4, 30]),
                ("lora_embedding_B", &[6, 3]),
            ]),
            "`lora_embedding_A` has 4 columns and `lora_embedding_B` has 3 rows, expected as many",
        ),
    ]);
}

#[test]
fn factors_of_products_that_contradict_each_other() {
    check_contradictions(vec![
        (
            of(&[
                ("hada_w1_a", &[6, 2]),
                ("hada_w1_b", &[2, 5]),
                ("hada_w2_a", &[6, 2]),
                ("hada_w2_b", &[2, 4]),
            ]),
            "`hada_w1_*` are for a weight of shape [6, 5], `hada_w2_*` of [6, 4]",
        ),
        (
            of(&[
                ("hada_w1_a", &[6, 3]),
                ("hada_w1_b", &[2, 5]),
                ("hada_w2_a", &[6, 2]),
                ("hada_w2_b", &[2, 5]),
            ]),
            "`hada_w1_a` has 3 columns and `hada_w1_b` has 2 rows, expected as many",
        ),
        (
            of(&[
                ("lokr_w1", &[3, 2]),
                ("lokr_w2_a", &[4, 0]),
                ("lokr_w2_b", &[0, 5]),
            ]),
            "the rank is 0",
        ),
        (
            lokr(&[3, 0], &[4, 5]),
            "the patch is for a weight of shape [3, 0], which has no values",
        ),
        (
            of(&[
                ("a1.weight", &[5, 2]),
                ("a2.weight", &[2, 6]),
                ("b1.weight", &[6, 2]),
                ("b2.weight", &[2, 5]),
            ]),
            "`a1.weight` and `a2.weight` make a matrix 5 by 6, expected a square one",
        ),
        (
            with(
                of(&[
                    ("lokr_w1", &[3, 2]),
                    ("lokr_w2_a", &[4, 2]),
                    ("lokr_w2_b", &[2, 5]),
                ]),
                vec![("alpha", scalar(f32::INFINITY))],
            ),
            "`alpha` is inf, expected a finite number",
        ),
    ]);
}

#[test]
fn parameters_of_no_shape() {
    check_contradictions(vec![
        (
            of(&[("diff", &[])]),
            "tensor `diff` has shape [], expected 2 or more dimensions",
        ),
        (
            of(&[("diff_b", &[6, 5])]),
            "tensor `diff_b` has shape [6, 5], expected 1 dimensions",
        ),
        (
            of(&[("set_weight", &[0, 5])]),
            "the patch is for a weight of shape [0, 5], which has no values",
        ),
    ]);
}

/// Tensors, a layer, and what it says to their patch.
fn check_misfits(cases: Vec<(Tensors, &LayerShape, &str)>) {
    for (tensors, layer, expected) in cases {
        let patch = load(&tensors).expect("a patch");
        assert_eq!(refusal(patch.as_ref(), layer), expected);
    }
}

#[test]
fn layers_of_another_shape() {
    let [linear, wide] = [LayerShape::linear(6, 5), LayerShape::linear(6, 7)];
    check_misfits(vec![
        (
            lora(&[6, 2], &[2, 5]),
            &wide,
            "the lora patch is for a weight of shape [6, 5], the layer has [6, 7]",
        ),
        (
            loha(6, 5),
            &wide,
            "the loha patch is for a weight of shape [6, 5], the layer has [6, 7]",
        ),
        (
            lokr(&[2, 1], &[3, 5]),
            &wide,
            "the lokr patch is for a weight of shape [6, 5], the layer has [6, 7]",
        ),
        (
            glora(6, 5),
            &wide,
            "the glora patch is for a weight of shape [6, 5], the layer has [6, 7]",
        ),
        (
            of(&[("diff", &[6, 5])]),
            &wide,
            "the full patch is for a weight of shape [6, 5], the layer has [6, 7]",
        ),
        (
            of(&[("diff_b", &[7])]),
            &linear,
            "the full patch is for a weight of shape [7, 5], the layer has [6, 5]",
        ),
        (
            of(&[("set_weight", &[6, 5])]),
            &wide,
            "the set-parameter patch is for a weight of shape [6, 5], the layer has [6, 7]",
        ),
    ]);
}

#[test]
fn kernels_of_as_many_elements() {
    let conv = LayerShape::conv(&[6, 4, 3, 3], 1);
    check_misfits(vec![
        (
            lora(&[6, 2, 1, 1], &[2, 9, 2, 2]),
            &conv,
            "the lora patch is for a weight of the axes [6, 9, 2, 2], the layer has [6, 4, 3, 3]",
        ),
        (
            lokr(&[2, 1], &[3, 9, 2, 2]),
            &conv,
            "the lokr patch is for a weight of the axes [6, 9, 2, 2], the layer has [6, 4, 3, 3]",
        ),
        (
            // The columns agree, but the kernel would be cut across blocks.
            lokr(&[2, 12], &[3, 3]),
            &conv,
            "the lokr patch is for a weight of the axes [6, 36], the layer has [6, 4, 3, 3]",
        ),
        (
            of(&[("diff", &[6, 9, 2, 2])]),
            &conv,
            "the full patch is for a weight of the axes [6, 9, 2, 2], the layer has [6, 4, 3, 3]",
        ),
    ]);
}

#[test]
fn layers_without_a_meaning() {
    let factors = "its factors are for a weight matrix";
    let bias = "it changes a bias, which only layers that add one have";
    let [norm, parameter] = [LayerShape::norm(6), LayerShape::parameter(&[6, 5])];
    let [linear, embedding] = [LayerShape::linear(6, 5), LayerShape::embedding(6, 5)];
    let with_bias = [lora(&[6, 2], &[2, 5]), of(&[("lora_up.bias", &[6])])].concat();
    let cases: Vec<(Tensors, &str, &LayerShape, &str)> = vec![
        (lora(&[6, 4], &[4, 1]), "lora", &norm, factors),
        (lora(&[6, 4], &[4, 5]), "lora", &parameter, factors),
        (loha(6, 1), "loha", &norm, factors),
        (lokr(&[6, 5], &[1, 1]), "lokr", &parameter, factors),
        (glora(6, 5), "glora", &parameter, factors),
        (with_bias, "lora", &embedding, bias),
        (of(&[("diff_b", &[6])]), "full", &embedding, bias),
        (of(&[("diff_b", &[6])]), "full", &parameter, bias),
        (
            of(&[("w_norm", &[6])]),
            "norm",
            &linear,
            "it changes the scale and the shift of a norm",
        ),
        (
            of(&[("scale", &[6])]),
            "set-parameter",
            &linear,
            "a `scale` without factors beside it replaces the scale of a norm",
        ),
    ];
    for (tensors, kind, layer, why) in cases {
        let patch = load(&tensors).expect("a patch");
        let operator = layer.operator();
        let article = match operator {
            Operator::Embedding => "an",
            _ => "a",
        };
        let expected = format!("a {kind} patch has no meaning on {article} {operator}: {why}");
        assert_eq!(refusal(patch.as_ref(), layer), expected);
    }
}

#[test]
fn kinds_that_read_the_base_say_so() {
    let layer = LayerShape::linear(6, 5);
    for (tensors, kind) in [
        (glora(6, 5), "glora"),
        (of(&[("set_weight", &[6, 5])]), "set-parameter"),
    ] {
        let patch = load(&tensors).expect("a patch");
        let found = message(patch.delta_weight(&BaseLayer::of_shape(&layer)));
        let expected = format!(
            "a {kind} patch needs the values of the base weight, but only its shape can be read; mount it on a \
             checkpoint whose weight can be decoded"
        );
        assert_eq!(found, expected);
    }
}

/// nunchaku packs its factors for one kernel and names them without `weight`.
#[test]
fn packed_factors_are_no_low_rank_patch() {
    let found = message(load(&of(&[("lora_down", &[16, 5]), ("lora_up", &[6, 16])])));
    let expected = "layer `layer`: no patch kind accepts the keys [\"lora_down\", \"lora_up\"]; these are the keys of nunchaku: its \
         factors are packed for the kernels of nunchaku; use the file it was converted from; known kinds:";
    assert!(found.starts_with(expected), "{found}");
}

/// Half of a kind names what is missing.
#[test]
fn incomplete_kinds_name_what_is_missing() {
    for (tensors, missing, kind) in [
        (
            of(&[
                ("hada_w1_a", &[6, 2]),
                ("hada_w1_b", &[2, 5]),
                ("hada_w2_b", &[2, 5]),
            ]),
            "hada_w2_a",
            "loha",
        ),
        (of(&[("lokr_w1", &[2, 2])]), "lokr_w2", "lokr"),
        (
            of(&[("lokr_w1", &[2, 2]), ("lokr_w2_a", &[2, 2])]),
            "lokr_w2_b",
            "lokr",
        ),
        (
            of(&[
                ("a1.weight", &[6, 2]),
                ("a2.weight", &[2, 6]),
                ("b2.weight", &[2, 6]),
            ]),
            "b1.weight",
            "glora",
        ),
    ] {
        let found = message(load(&tensors));
        let expected = format!(", which a {kind} patch needs; is the file complete?");
        assert!(
            found.contains(&format!("[\"{missing}\"] missing")),
            "{found}"
        );
        assert!(found.ends_with(&expected), "{found}");
    }
}
