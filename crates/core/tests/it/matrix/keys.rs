//! The tensors of every kind for a layer of any shape, under the keys that the registry knows.
//!
//! They are built for layers too that the kind has no meaning on.

use burn::tensor::TensorData;
use overglaze_patches::{LayerShape, Operator};

use crate::numbers::wave;

pub(crate) type Keys = Vec<(&'static str, TensorData)>;

const RANK: usize = 4;

/// Dimensions of a factor `[rows, columns, kernel…]`.
fn with_kernel(sizes: [usize; 2], shape: &LayerShape) -> Vec<usize> {
    [&sizes, shape.kernel()].concat()
}

/// A wave between `center - reach` and `center + reach`.
fn around(center: f32, reach: f32, shape: &[usize], seed: usize) -> TensorData {
    let values: Vec<f32> = wave(shape, seed).iter().collect();
    let values: Vec<f32> = values.iter().map(|value| center + reach * value).collect();
    TensorData::new(values, shape)
}

pub(crate) fn number(value: f32) -> TensorData {
    TensorData::from([value])
}

/// The factors of a layer, `down` with the layer's kernel.
pub(crate) fn lora(shape: &LayerShape) -> Keys {
    let down = with_kernel([RANK, shape.d_input()], shape);
    vec![
        ("lora_up.weight", wave(&[shape.d_output(), RANK], 21)),
        ("lora_down.weight", wave(&down, 22)),
        ("alpha", number(2.0)),
    ]
}

/// The same with the kernel flattened.
pub(crate) fn flat_lora(shape: &LayerShape) -> Keys {
    vec![
        ("lora_up.weight", wave(&[shape.d_output(), RANK], 21)),
        ("lora_down.weight", wave(&[RANK, shape.fan_in()], 22)),
    ]
}

/// Factors with a kernel of one element.
pub(crate) fn pointwise_lora(shape: &LayerShape) -> Keys {
    vec![
        ("lora_up.weight", wave(&[shape.d_output(), RANK, 1, 1], 21)),
        ("lora_down.weight", wave(&[RANK, shape.d_input(), 1, 1], 22)),
    ]
}

pub(crate) fn tucker_lora(shape: &LayerShape) -> Keys {
    vec![
        ("lora_up.weight", wave(&[shape.d_output(), 3, 1, 1], 21)),
        ("lora_mid.weight", wave(&with_kernel([3, 2], shape), 23)),
        ("lora_down.weight", wave(&[2, shape.d_input(), 1, 1], 22)),
    ]
}

/// `down` with twice the rank of `up`.
pub(crate) fn chunked_lora(shape: &LayerShape) -> Keys {
    let down = with_kernel([2 * RANK, shape.d_input()], shape);
    vec![
        ("lora_up.weight", wave(&[shape.d_output(), RANK], 21)),
        ("lora_down.weight", wave(&down, 22)),
    ]
}

/// Factors that read 32 columns more than the layer has.
pub(crate) fn control_lora(shape: &LayerShape) -> Keys {
    vec![
        ("lora_up.weight", wave(&[shape.d_output(), RANK], 21)),
        ("lora_down.weight", wave(&[RANK, shape.fan_in() + 32], 22)),
    ]
}

/// An embedding's factors, the other way round.
pub(crate) fn embedding_lora(shape: &LayerShape) -> Keys {
    vec![
        ("lora_embedding_A", wave(&[RANK, shape.d_output()], 21)),
        ("lora_embedding_B", wave(&[shape.fan_in(), RANK], 22)),
    ]
}

pub(crate) fn vector(key: &'static str, length: usize) -> Keys {
    vec![(key, wave(&[length], 31))]
}

/// Values at two places of a weight.
pub(crate) fn sparse_weight(shape: &LayerShape) -> Keys {
    let [d_output, fan_in] = shape.matrix();
    let (rows, columns) = ([1, d_output as i64 - 1], [0, fan_in as i64 - 1]);
    sparse(&[rows, columns].concat(), &[d_output as i64, fan_in as i64])
}

/// Values at two places of a bias.
pub(crate) fn sparse_bias(shape: &LayerShape) -> Keys {
    let d_output = shape.d_output() as i64;
    sparse(&[1, d_output - 1], &[d_output])
}

fn sparse(indices: &[i64], size: &[i64]) -> Keys {
    let dimensions = [size.len(), 2];
    vec![
        (
            "bias_indices",
            TensorData::new(indices.to_vec(), dimensions),
        ),
        ("bias_values", TensorData::from([3.0_f32, -4.0])),
        ("bias_size", TensorData::new(size.to_vec(), [size.len()])),
    ]
}

pub(crate) fn loha(shape: &LayerShape, rank: usize) -> Keys {
    let [d_output, fan_in] = shape.matrix();
    vec![
        ("hada_w1_a", wave(&[d_output, rank], 41)),
        ("hada_w1_b", wave(&[rank, fan_in], 42)),
        ("hada_w2_a", wave(&[d_output, rank], 43)),
        ("hada_w2_b", wave(&[rank, fan_in], 44)),
        ("alpha", number(3.0 * rank as f32)),
    ]
}

pub(crate) fn tucker_loha(shape: &LayerShape) -> Keys {
    let middle = with_kernel([2, 2], shape);
    vec![
        ("hada_t1", wave(&middle, 45)),
        ("hada_w1_a", wave(&[2, shape.d_output()], 41)),
        ("hada_w1_b", wave(&[2, shape.d_input()], 42)),
        ("hada_t2", wave(&middle, 46)),
        ("hada_w2_a", wave(&[2, shape.d_output()], 43)),
        ("hada_w2_b", wave(&[2, shape.d_input()], 44)),
    ]
}

/// How a weight is split into the sides of a Kronecker product: `[a, b]` and `[c, d]`.
fn sides(shape: &LayerShape, parts: usize) -> ([usize; 2], [usize; 2]) {
    let [a, b] = [shape.d_output(), shape.d_input()].map(|size| match size % parts {
        0 => parts,
        _ => 1,
    });
    ([a, b], [shape.d_output() / a, shape.d_input() / b])
}

/// Which form a side of a Kronecker product has.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Whole,
    Factors,
    Tucker,
}

pub(crate) fn lokr(shape: &LayerShape, parts: usize, forms: [Side; 2]) -> Keys {
    let ([a, b], [c, d]) = sides(shape, parts);
    let flat = d * shape.kernel().iter().product::<usize>();
    let mut keys = match forms[0] {
        Side::Whole => vec![("lokr_w1", wave(&[a, b], 51))],
        _ => vec![
            ("lokr_w1_a", wave(&[a, 2], 51)),
            ("lokr_w1_b", wave(&[2, b], 52)),
        ],
    };
    keys.extend(match forms[1] {
        Side::Whole => vec![("lokr_w2", wave(&with_kernel([c, d], shape), 53))],
        Side::Factors => vec![
            ("lokr_w2_a", wave(&[c, 2], 53)),
            ("lokr_w2_b", wave(&[2, flat], 54)),
        ],
        Side::Tucker => vec![
            ("lokr_t2", wave(&with_kernel([2, 2], shape), 55)),
            ("lokr_w2_a", wave(&[2, c], 53)),
            ("lokr_w2_b", wave(&[2, d], 54)),
        ],
    });
    keys.push(("alpha", number(1.0)));
    keys
}

/// Both sides whole, the second one flattened.
pub(crate) fn flat_lokr(shape: &LayerShape) -> Keys {
    let ([a, b], [c, d]) = sides(shape, 4);
    let flat = d * shape.kernel().iter().product::<usize>();
    vec![
        ("lokr_w1", wave(&[a, b], 51)),
        ("lokr_w2", wave(&[c, flat], 53)),
    ]
}

pub(crate) fn glora(shape: &LayerShape) -> Keys {
    let (d_input, rank) = (shape.d_input(), shape.d_input().min(2));
    vec![
        ("a1.weight", around(0.0, 0.2, &[d_input, rank], 61)),
        ("a2.weight", around(0.0, 0.2, &[rank, d_input], 62)),
        ("b1.weight", wave(&[shape.d_output(), rank], 63)),
        ("b2.weight", wave(&with_kernel([rank, d_input], shape), 64)),
        ("alpha", number(2.0)),
    ]
}

/// A magnitude along an axis of the weight, as LyCORIS shapes it.
pub(crate) fn dora_scale(shape: &LayerShape, axis: usize) -> Keys {
    let mut dims = vec![1; 2 + shape.kernel().len()];
    dims[axis] = [shape.d_output(), shape.d_input()][axis];
    vec![("dora_scale", around(3.0, 2.0, &dims, 71))]
}

/// A magnitude under the key `key`: of outputs, and PEFT's of an embedding of its features.
pub(crate) fn magnitude(shape: &LayerShape, key: &'static str) -> Keys {
    let is_of_features = shape.operator() == Operator::Embedding && key.starts_with("lora_");
    let length = if is_of_features {
        shape.d_input()
    } else {
        shape.d_output()
    };
    vec![(key, around(3.0, 2.0, &[length], 71))]
}

/// LyCORIS (IA)³ on the outputs or the inputs.
pub(crate) fn ia3(length: usize, on_input: bool) -> Keys {
    vec![
        ("weight", wave(&[length], 81)),
        ("on_input", TensorData::from([on_input])),
    ]
}

/// PEFT (IA)³ of these dimensions.
pub(crate) fn peft_ia3(dims: &[usize]) -> Keys {
    vec![("ia3_l", around(1.0, 0.7, dims, 82))]
}

/// LyCORIS rotations of `factors` times all outputs.
pub(crate) fn oft_blocks(shape: &LayerShape, factors: Option<usize>) -> Keys {
    let blocks = [shape.d_output() / 4, 4, 4];
    let dims = [factors.as_slice(), &blocks].concat();
    vec![("oft_blocks", around(0.0, 0.4, &dims, 91))]
}

pub(crate) fn oft_diagonal(shape: &LayerShape) -> Keys {
    let dims = [shape.d_output() / 4, 4, 4];
    vec![("oft_diag", around(0.0, 0.3, &dims, 91))]
}

pub(crate) fn rescale(shape: &LayerShape) -> Keys {
    vec![("rescale", around(1.0, 0.4, &[shape.d_output(), 1], 92))]
}

/// PEFT's butterfly factors: two, where blocks can be paired.
pub(crate) fn peft_boft(shape: &LayerShape) -> Keys {
    let num_blocks = (shape.fan_in() / 4).max(1);
    let num_factors = if num_blocks.is_multiple_of(2) { 2 } else { 1 };
    vec![
        (
            "boft_R",
            around(0.0, 0.4, &[num_factors, num_blocks, 4, 4], 96),
        ),
        ("boft_s", around(1.0, 0.4, &[shape.d_output(), 1], 97)),
    ]
}

/// PEFT's rotations up to 0.14.
pub(crate) fn old_peft_oft(shape: &LayerShape) -> Keys {
    let num_blocks = (shape.fan_in() / 4).max(1);
    vec![
        ("oft_r", around(0.0, 0.4, &[num_blocks, 4, 4], 93)),
        ("oft_s", around(1.0, 0.4, &[shape.d_output(), 1], 94)),
    ]
}

/// PEFT's rotations from 0.15 on.
pub(crate) fn new_peft_oft(num_blocks: usize) -> Keys {
    let triangles = [num_blocks.max(1), 6];
    vec![("oft_R.weight", around(0.0, 0.2, &triangles, 95))]
}
