//! Control patches: they read more columns of an open input than the base has.

use burn::{
    module::Param,
    nn::LinearConfig,
    tensor::{DType, Tensor},
};
use overglaze_core::{
    Mounting, PatchedLayer, PatchedLinear, Placement, Weight, mount, swap, unmount,
};

use crate::{
    numbers::{assert_close, bits, flex, lora, lora_delta, message, packed, plain, tensor},
    test_patch::TestPatch,
    toy::{Toy, patch_set},
};

const SHAPE: [usize; 2] = [6, 32];
const WIDE: [usize; 2] = [6, 48];
/// Two sums of at most 48 products of numbers below 1 in f32, in two orders.
const TOLERANCE: f32 = 2e-5;

fn burned() -> PatchedLinear {
    let mut linear = LinearConfig::new(SHAPE[1], SHAPE[0]).init(&flex());
    linear.weight = Param::from_tensor(plain(SHAPE, 1).transpose());
    linear.bias = Some(Param::from_tensor(plain([SHAPE[0]], 2)));
    PatchedLinear::from(linear)
}

fn bases() -> [(&'static str, PatchedLinear); 4] {
    let over = |weight| PatchedLinear::from_weights(weight, Some(plain([6], 2)), flex());
    [
        ("burn", burned()),
        (
            "bf16",
            over(Weight::Dense(tensor(SHAPE, 1, &flex(), DType::BF16))),
        ),
        ("packed f32", over(packed("f32", SHAPE, 1))),
        ("packed q8_0", over(packed("q8_0", SHAPE, 1))),
    ]
}

fn first(input: &Tensor<3>) -> Tensor<3> {
    input.clone().slice_dim(2, 0..SHAPE[1])
}

fn times(input: &Tensor<3>, weight: Tensor<2>) -> Tensor<3> {
    input.clone().matmul(weight.transpose().unsqueeze())
}

#[test]
fn a_control_patch_gets_the_whole_input_and_the_others_their_columns() {
    let input: Tensor<3> = plain([2, 3, WIDE[1]], 3);
    let (control, control_bias) = lora_delta(WIDE, 2, 20);
    let (ordinary, ordinary_bias) = lora_delta(SHAPE, 3, 30);
    let dense = plain(SHAPE, 40);
    for (name, base) in bases() {
        let mut layer = base.clone().with_open_input();
        assert_eq!(layer.d_input(), 32);
        let plain_output = base.forward(first(&input));
        layer
            .add_patch("control", lora(WIDE, 2, 20), 0.5)
            .expect("the input is open");
        layer
            .add_patch("ordinary", lora(SHAPE, 3, 30), 0.7)
            .expect("it fits");
        let silent = TestPatch::new(Some(dense.clone()), None).shared();
        layer.add_patch("dense", silent, -1.0).expect("it fits");
        layer
            .add_patch("gain", TestPatch::gain(0.5).shared(), 1.0)
            .expect("it fits");
        assert_eq!(layer.d_input(), 48);
        let bias = control_bias.clone().mul_scalar(0.5) + ordinary_bias.clone().mul_scalar(0.7);
        let own = base.base_values(&flex()).expect("it is resident").0;
        let expected = plain_output.clone()
            + times(&input, control.clone().mul_scalar(0.5))
            + times(
                &first(&input),
                ordinary.clone().mul_scalar(0.7) - dense.clone() + own.mul_scalar(0.5),
            )
            + bias.unsqueeze();
        assert_close(
            name,
            &layer.forward(input.clone()),
            &expected,
            2.0 * TOLERANCE,
        );
        let narrow = layer.try_forward(first(&input));
        assert_eq!(
            message(narrow),
            "the input has 32 features, the layer takes 48"
        );
        layer.reweight_patch("control", 0.0).expect("it is finite");
        assert_eq!(
            layer.d_input(),
            32,
            "a patch without effect asks for nothing"
        );
        for gone in ["control", "ordinary", "dense", "gain"] {
            assert!(layer.remove_patch(gone));
        }
        assert_eq!(bits(&layer.forward(first(&input))), bits(&plain_output));
        let wide = layer.try_forward(input.clone());
        assert_eq!(
            message(wide),
            "the input has 48 features, the layer takes 32"
        );
    }
}

#[test]
fn a_layer_whose_input_is_not_open_refuses_a_control_patch() {
    let mut layer = burned();
    let refused = layer.add_patch("control", lora(WIDE, 2, 20), 1.0);
    let expected = "the lora patch is for a weight of shape [6, 48], the layer has [6, 32]";
    assert_eq!(message(refused), expected);
}

#[test]
fn a_direct_control_patch_widens_the_merged_weight_with_zeros() {
    let input: Tensor<3> = plain([2, 3, WIDE[1]], 3);
    let control = patch_set(vec![("fc", lora(WIDE, 2, 20))]);
    let ordinary = patch_set(vec![("fc", lora(SHAPE, 3, 30))]);
    let fresh = || Toy::new(vec![("fc", burned().with_open_input())]);
    let mut side = fresh();
    mount(&mut side, "control", &control, 0.5).expect("it fits");
    mount(&mut side, "ordinary", &ordinary, 0.7).expect("it fits");
    let expected = side.layers[0].forward(input.clone());
    for (names, placements) in [
        ("both direct", [Placement::Direct; 2]),
        ("control direct", [Placement::Direct, Placement::Sidecar]),
        ("ordinary direct", [Placement::Sidecar, Placement::Direct]),
    ] {
        let mut toy = fresh();
        let before = bits(&toy.layers[0].forward(first(&input)));
        let mountings = [
            Mounting::new("control", &control, 0.5).with_placement(placements[0]),
            Mounting::new("ordinary", &ordinary, 0.7).with_placement(placements[1]),
        ];
        swap(&mut toy, &[], &mountings).expect("they fit");
        assert_close(
            names,
            &toy.layers[0].forward(input.clone()),
            &expected,
            TOLERANCE,
        );
        unmount(&mut toy, "control").expect("it is mounted");
        assert_eq!(toy.layers[0].d_input(), 32);
        unmount(&mut toy, "ordinary").expect("it is mounted");
        assert_eq!(bits(&toy.layers[0].forward(first(&input))), before);
    }
}
