//! The four paths of a linear layer, with weights on one CPU backend and input on the other.

use burn::{
    module::Param,
    nn::{Linear, LinearConfig},
    tensor::{
        DType::{self, BF16, F16, F32},
        Device, Tensor,
    },
};
use overglaze_core::{PatchedLayer, PatchedLinear, Path, Weight};

use crate::{
    numbers::{assert_close, flex, largest, ndarray, packed, plain, rounded, roundoff, tensor},
    test_patch::TestPatch,
};

pub(crate) const SHAPE: [usize; 2] = [6, 8];
const WEIGHT_BYTES: u64 = 4 * 48;
const BIAS_BYTES: u64 = 4 * 6;

/// A Burn layer of waves with parameters in these dtypes on `device`, as `[weight, bias]`.
pub(crate) fn burn_layer([weight, bias]: [DType; 2], device: &Device) -> Linear {
    let mut linear = LinearConfig::new(SHAPE[1], SHAPE[0]).init(device);
    let weight = tensor(SHAPE, 1, device, weight).transpose();
    linear.weight = Param::from_tensor(weight);
    linear.bias = Some(Param::from_tensor(tensor([SHAPE[0]], 2, device, bias)));
    linear
}

pub(crate) fn burned(dtypes: [DType; 2], device: &Device) -> PatchedLinear {
    burn_layer(dtypes, device).into()
}

fn dense(dtypes: [DType; 2], devices: [&Device; 2]) -> PatchedLinear {
    let weight = Weight::Dense(tensor(SHAPE, 1, devices[0], dtypes[0]));
    let bias = tensor([SHAPE[0]], 2, devices[1], dtypes[1]);
    PatchedLinear::from_weights(weight, Some(bias), devices[0].clone())
}

pub(crate) fn packed_with(format: &str, bias: &Device) -> PatchedLinear {
    let bias = tensor([SHAPE[0]], 2, bias, F32);
    PatchedLinear::from_weights(packed(format, SHAPE, 1), Some(bias), flex())
}

fn reference(rows: usize, dtypes: [DType; 2], input: DType) -> Tensor<2> {
    let input = rounded([rows, SHAPE[1]], 3, input);
    let weight = rounded(SHAPE, 1, dtypes[0]);
    let bias = rounded([SHAPE[0]], 2, dtypes[1]);
    input.matmul(weight.transpose()) + bias.unsqueeze()
}

/// Sums of eight products of numbers below 1 in f32. A narrow output is rounded once, by Burn's own layer
/// twice: the product, which is within the bias of 1 of the output, and the sum.
fn tolerance(dtype: DType, path: Path, expected: &Tensor<2>) -> f32 {
    let rounding = match path {
        _ if dtype == F32 => 0.0,
        Path::Native => roundoff(dtype) * (2.0 * largest(expected) + 1.0),
        _ => roundoff(dtype) * largest(expected),
    };
    rounding + 1e-5
}

/// The layer, the dtypes of `[weight, bias]`, the input's place; path, and moves with their bytes.
struct Case {
    name: &'static str,
    layer: PatchedLinear,
    dtypes: [DType; 2],
    input: (Device, DType),
    path: Path,
    moves: [u64; 2],
}

impl Case {
    fn check(self) {
        let (name, (device, dtype)) = (self.name, &self.input);
        let path = self
            .layer
            .path(device, *dtype)
            .expect("nothing is streamed");
        assert_eq!(path, self.path, "{name}");
        let output = self.layer.forward(tensor([3, SHAPE[1]], 3, device, *dtype));
        assert_eq!(
            (&output.device(), output.dtype()),
            (device, *dtype),
            "{name}"
        );
        let expected = reference(3, self.dtypes, *dtype);
        let tolerance = tolerance(*dtype, path, &expected);
        assert_close(name, &output, &expected, tolerance);
        let traffic = self.layer.traffic();
        let moves = [traffic.num_moves(), traffic.moved_bytes()];
        assert_eq!(moves, self.moves, "{name}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table, one case after another")]
fn a_weight_in_place_is_used_as_it_is() {
    let (flex, nd) = (flex(), ndarray());
    let bare = PatchedLinear::from_weights(packed("f32", SHAPE, 1), None, flex.clone());
    let input = tensor([3, SHAPE[1]], 3, &nd, F32);
    assert_eq!(
        bare.path(&nd, F32).expect("nothing is streamed"),
        Path::Native
    );
    let output = bare.forward(input);
    let bias = plain([SHAPE[0]], 2).unsqueeze();
    assert_close(
        "packed, no bias",
        &output,
        &(reference(3, [F32; 2], F32) - bias),
        1e-5,
    );
    assert_eq!(bare.traffic().num_moves(), 0);
    for (name, layer, dtypes, input) in [
        (
            "burn f32 flex",
            burned([F32; 2], &flex),
            [F32; 2],
            (flex.clone(), F32),
        ),
        (
            "burn f32 ndarray",
            burned([F32; 2], &nd),
            [F32; 2],
            (nd.clone(), F32),
        ),
        (
            "burn bf16",
            burned([BF16; 2], &flex),
            [BF16; 2],
            (flex.clone(), BF16),
        ),
        (
            "burn f16",
            burned([F16; 2], &flex),
            [F16; 2],
            (flex.clone(), F16),
        ),
        (
            "dense f32",
            dense([F32; 2], [&flex; 2]),
            [F32; 2],
            (flex.clone(), F32),
        ),
        (
            "dense ndarray",
            dense([F32; 2], [&nd; 2]),
            [F32; 2],
            (nd.clone(), F32),
        ),
        (
            "packed f32",
            packed_with("f32", &flex),
            [F32; 2],
            (flex.clone(), F32),
        ),
        (
            "packed bf16",
            packed_with("bf16", &flex),
            [BF16, F32],
            (flex.clone(), F32),
        ),
        (
            "packed f16, ndarray",
            packed_with("f16", &nd),
            [F16, F32],
            (nd.clone(), F32),
        ),
    ] {
        let (path, moves) = (Path::Native, [0, 0]);
        Case {
            name,
            layer,
            dtypes,
            input,
            path,
            moves,
        }
        .check();
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table, one case after another")]
fn a_weight_elsewhere_follows_the_input_and_its_bytes_are_counted() {
    let (flex, nd) = (flex(), ndarray());
    let both = [2, WEIGHT_BYTES + BIAS_BYTES];
    let bias = [1, BIAS_BYTES];
    let weight = [1, WEIGHT_BYTES];
    for (name, layer, dtypes, device, moves) in [
        (
            "burn to ndarray",
            burned([F32; 2], &flex),
            [F32; 2],
            &nd,
            both,
        ),
        ("burn to flex", burned([F32; 2], &nd), [F32; 2], &flex, both),
        (
            "dense to ndarray",
            dense([F32; 2], [&flex; 2]),
            [F32; 2],
            &nd,
            both,
        ),
        (
            "dense to flex",
            dense([F32; 2], [&nd; 2]),
            [F32; 2],
            &flex,
            both,
        ),
        // ndarray has no bf16: the values cross as f32.
        (
            "bf16 to ndarray",
            dense([BF16; 2], [&flex; 2]),
            [BF16; 2],
            &nd,
            both,
        ),
        (
            "weight only",
            dense([F32; 2], [&nd, &flex]),
            [F32; 2],
            &flex,
            weight,
        ),
        (
            "bias only",
            dense([F32; 2], [&flex, &nd]),
            [F32; 2],
            &flex,
            bias,
        ),
        (
            "packed, bias to ndarray",
            packed_with("f32", &flex),
            [F32; 2],
            &nd,
            bias,
        ),
        (
            "packed, bias to flex",
            packed_with("bf16", &nd),
            [BF16, F32],
            &flex,
            bias,
        ),
    ] {
        let (path, input) = (Path::Moved, (device.clone(), F32));
        Case {
            name,
            layer,
            dtypes,
            input,
            path,
            moves,
        }
        .check();
    }
}

#[test]
fn another_dtype_of_weight_or_bias_is_cast() {
    for input in [F32, BF16, F16] {
        for dtypes in [
            [F32, F32],
            [BF16, BF16],
            [F16, F16],
            [BF16, F32],
            [F32, BF16],
            [F16, BF16],
        ] {
            if dtypes == [input; 2] {
                continue;
            }
            for (name, layer) in [
                ("burn", burned(dtypes, &flex())),
                ("dense", dense(dtypes, [&flex(), &flex()])),
            ] {
                let (path, moves, input) = (Path::Cast, [0, 0], (flex(), input));
                Case {
                    name,
                    layer,
                    dtypes,
                    input,
                    path,
                    moves,
                }
                .check();
            }
        }
    }
    for input in [BF16, F16] {
        let (name, layer, dtypes) = ("packed", packed_with("f16", &flex()), [F16, F32]);
        let (path, moves, input) = (Path::Cast, [0, 0], (flex(), input));
        Case {
            name,
            layer,
            dtypes,
            input,
            path,
            moves,
        }
        .check();
    }
}

#[test]
fn the_dtype_path_is_for_float_inputs_only() {
    for layer in [
        burned([BF16; 2], &flex()),
        dense([F32, BF16], [&flex(), &flex()]),
    ] {
        for dtype in [DType::I32, DType::U8, DType::I64] {
            let path = layer.path(&flex(), dtype).expect("nothing is streamed");
            assert_eq!(path, Path::Native);
        }
    }
}

#[test]
fn patches_take_the_first_path_wherever_the_weight_is() {
    let (flex, nd) = (flex(), ndarray());
    let zeros = || TestPatch::new(Some(Tensor::zeros(SHAPE, &flex)), None).shared();
    for (name, mut layer, dtypes, input, moves) in [
        (
            "native",
            burned([F32; 2], &flex),
            [F32; 2],
            (flex.clone(), F32),
            [0, 0],
        ),
        (
            "cast",
            dense([F16, BF16], [&flex; 2]),
            [F16, BF16],
            (flex.clone(), F32),
            [0, 0],
        ),
        (
            "bf16 input",
            burned([BF16; 2], &flex),
            [BF16; 2],
            (flex.clone(), BF16),
            [0, 0],
        ),
        (
            "packed",
            packed_with("bf16", &flex),
            [BF16, F32],
            (flex.clone(), F16),
            [0, 0],
        ),
        (
            "to flex",
            burned([F32; 2], &nd),
            [F32; 2],
            (flex.clone(), F32),
            [2, 216],
        ),
        (
            "to ndarray",
            burned([F32; 2], &flex),
            [F32; 2],
            (nd.clone(), F32),
            [2, 216],
        ),
    ] {
        layer.set_autocast(false);
        layer.add_patch("zeros", zeros(), 1.0).expect("it fits");
        Case {
            name,
            layer,
            dtypes,
            input,
            path: Path::Patched,
            moves,
        }
        .check();
    }
}
