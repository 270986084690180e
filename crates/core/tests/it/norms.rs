//! The norms against Burn's own, patched scale and shift, and their parameters shared.

use std::sync::Arc;

use burn::{
    module::{Module, Param},
    nn::{LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig},
    tensor::{DType, Tensor},
};
use overglaze_core::{
    LayerTree, NameTable, PatchedLayer, PatchedLayerNorm, PatchedRmsNorm, merge, mount, restore,
};

use crate::{
    numbers::{
        assert_close, bits, flex, largest, message, ndarray, plain, rounded, roundoff, tensor,
    },
    test_patch::TestPatch,
    toy::patch_set,
};

const WIDTH: usize = 8;
const EPSILON: f64 = 1e-6;

/// A mean of eight squares, a root and a quotient of numbers below 3, in f32.
const TOLERANCE: f32 = 1e-5;

fn rms(dtype: DType) -> RmsNorm {
    let mut norm = RmsNormConfig::new(WIDTH)
        .with_epsilon(EPSILON)
        .init(&flex());
    norm.gamma = Param::from_tensor(tensor([WIDTH], 1, &flex(), dtype));
    norm
}

fn layer(dtype: DType) -> LayerNorm {
    let mut norm = LayerNormConfig::new(WIDTH)
        .with_epsilon(EPSILON)
        .init(&flex());
    norm.gamma = Param::from_tensor(tensor([WIDTH], 1, &flex(), dtype));
    norm.beta = Some(Param::from_tensor(tensor([WIDTH], 2, &flex(), dtype)));
    norm
}

fn check_rank<const D: usize>(dims: [usize; D]) {
    let input = plain(dims, 3);
    let found = PatchedRmsNorm::from(rms(DType::F32)).forward(input.clone());
    assert_close(
        "rms",
        &found,
        &rms(DType::F32).forward(input.clone()),
        TOLERANCE,
    );
    let found = PatchedLayerNorm::from_burn(layer(DType::F32), EPSILON).forward(input.clone());
    assert_close(
        "layer",
        &found,
        &layer(DType::F32).forward(input),
        TOLERANCE,
    );
}

#[test]
fn they_equal_burns_own() {
    check_rank([WIDTH]);
    check_rank([3, WIDTH]);
    check_rank([2, 3, WIDTH]);
    check_rank([2, 1, 3, WIDTH]);
    check_rank([0, WIDTH]);
}

/// Burn's norms in f32 over parameters that were rounded to `scale` and an input rounded to `dtype`.
fn wide_outputs(scale: DType, dtype: DType) -> [Tensor<2>; 2] {
    let (mut rms, mut layer) = (rms(DType::F32), layer(DType::F32));
    rms.gamma = Param::from_tensor(rounded([WIDTH], 1, scale));
    layer.gamma = Param::from_tensor(rounded([WIDTH], 1, scale));
    layer.beta = Some(Param::from_tensor(rounded([WIDTH], 2, scale)));
    let input = rounded([3, WIDTH], 3, dtype);
    [rms.forward(input.clone()), layer.forward(input)]
}

#[test]
fn dtypes_may_differ_and_the_input_keeps_its_own() {
    for scale in [DType::F32, DType::BF16, DType::F16] {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let expected = wide_outputs(scale, dtype);
            let input: Tensor<2> = tensor([3, WIDTH], 3, &flex(), dtype);
            let outputs = [
                PatchedRmsNorm::from(rms(scale)).forward(input.clone()),
                PatchedLayerNorm::from_burn(layer(scale), EPSILON).forward(input),
            ];
            for (output, expected) in outputs.iter().zip(&expected) {
                assert_eq!(output.dtype(), dtype);
                // One rounding of what is computed in f32.
                let tolerance = roundoff(dtype) * largest(expected) + TOLERANCE;
                assert_close("narrow", output, expected, tolerance);
            }
        }
    }
}

#[test]
fn a_norm_without_scale_and_shift_only_normalizes() {
    let norm = PatchedLayerNorm::without_affine(WIDTH, EPSILON, &flex(), Arc::default());
    let bare = LayerNormConfig::new(WIDTH)
        .with_epsilon(EPSILON)
        .with_bias(false)
        .init(&flex());
    let input = plain([3, WIDTH], 3);
    assert_close(
        "bare",
        &norm.forward(input.clone()),
        &bare.forward(input),
        TOLERANCE,
    );
    let message = message(norm.into_inner());
    assert_eq!(
        message,
        "the layer's weight is packed or streamed, so there is no Burn layer to hand back"
    );
}

fn patch() -> TestPatch {
    TestPatch::new(Some(plain([WIDTH, 1], 20)), Some(plain([WIDTH], 21)))
}

/// Burn's norm with the patched scale, plus the shift.
fn patched_reference(strength: f32, input: &Tensor<2>) -> [Tensor<2>; 2] {
    let scale = plain([WIDTH], 20).mul_scalar(strength);
    let shift = plain([WIDTH], 21).mul_scalar(strength).unsqueeze();
    let (mut rms, mut layer) = (rms(DType::F32), layer(DType::F32));
    rms.gamma = rms.gamma.map(|gamma| gamma + scale.clone());
    layer.gamma = layer.gamma.map(|gamma| gamma + scale);
    [
        rms.forward(input.clone()) + shift.clone(),
        layer.forward(input.clone()) + shift,
    ]
}

#[test]
fn patches_change_scale_and_shift() {
    let input = plain([3, WIDTH], 3);
    let mut layer = PatchedLayerNorm::from_burn(layer(DType::F32), EPSILON);
    let base = bits(&layer.forward(input.clone()));
    layer
        .add_patch("test", patch().shared(), 0.5)
        .expect("it fits");
    let [_, expected] = patched_reference(0.5, &input);
    assert_close("layer", &layer.forward(input.clone()), &expected, TOLERANCE);
    layer.clear_patches();
    assert_eq!(bits(&layer.forward(input.clone())), base);
    let mut rms = PatchedRmsNorm::from(rms(DType::F32));
    let unpatched = rms.forward(input.clone());
    rms.add_patch("gain", TestPatch::gain(1.0).shared(), 1.0)
        .expect("it fits");
    let doubled = unpatched.mul_scalar(2.0);
    assert_close("rms", &rms.forward(input.clone()), &doubled, TOLERANCE);
    let mut bare = PatchedLayerNorm::without_affine(WIDTH, EPSILON, &flex(), Arc::default());
    let unpatched = bare.forward(input.clone());
    bare.add_patch("test", patch().shared(), 1.0)
        .expect("it fits");
    let scale = plain([WIDTH], 20).add_scalar(1.0).unsqueeze();
    let expected = unpatched * scale + plain([WIDTH], 21).unsqueeze();
    assert_close("bare", &bare.forward(input), &expected, TOLERANCE);
}

#[test]
fn a_shift_on_the_rms_norm_is_added() {
    let input = plain([3, WIDTH], 3);
    let mut norm = PatchedRmsNorm::from(rms(DType::F32));
    norm.add_patch("test", patch().shared(), -0.5)
        .expect("it fits");
    let [expected, _] = patched_reference(-0.5, &input);
    assert_close("rms", &norm.forward(input), &expected, TOLERANCE);
}

#[test]
fn parameters_are_shared_both_ways() {
    let (rms, layer) = (rms(DType::F32), layer(DType::F32));
    let input = plain([3, WIDTH], 3);
    let expected = [
        bits(&rms.forward(input.clone())),
        bits(&layer.forward(input.clone())),
    ];
    let ids = [
        rms.gamma.id,
        layer.gamma.id,
        layer.beta.as_ref().expect("it has one").id,
    ];
    let wrapped = (
        PatchedRmsNorm::from(rms),
        PatchedLayerNorm::from_burn(layer, EPSILON),
    );
    assert_eq!(
        [wrapped.0.num_params(), wrapped.1.num_params()],
        [WIDTH, 2 * WIDTH]
    );
    let mut mounted = wrapped.clone();
    mounted
        .0
        .add_patch("test", patch().shared(), 1.0)
        .expect("it fits");
    mounted
        .1
        .add_patch("test", patch().shared(), 1.0)
        .expect("it fits");
    let refused = "patches are mounted on this layer; unmount them before `into_inner`";
    assert_eq!(message(mounted.0.into_inner()), refused);
    assert_eq!(message(mounted.1.into_inner()), refused);
    let rms = wrapped.0.into_inner().expect("nothing is mounted");
    let layer = wrapped.1.into_inner().expect("nothing is mounted");
    assert_eq!(
        [
            rms.gamma.id,
            layer.gamma.id,
            layer.beta.as_ref().expect("it has one").id
        ],
        ids
    );
    assert_eq!(
        [
            bits(&rms.forward(input.clone())),
            bits(&layer.forward(input))
        ],
        expected
    );
}

#[test]
fn a_scale_elsewhere_follows_the_input_unless_told_not_to() {
    let input: Tensor<2> = tensor([3, WIDTH], 3, &ndarray(), DType::F32);
    let mut norm = PatchedLayerNorm::from_burn(layer(DType::F32), EPSILON);
    let expected = norm.forward(plain([3, WIDTH], 3));
    assert_eq!(norm.traffic().num_moves(), 0);
    let output = norm.forward(input.clone());
    assert_eq!(output.device(), ndarray());
    assert_close("moved", &output, &expected, TOLERANCE);
    let traffic = norm.traffic();
    assert_eq!((traffic.num_moves(), traffic.moved_bytes()), (2, 2 * 4 * 8));
    norm.set_autocast(false);
    let mut rms = PatchedRmsNorm::from(rms(DType::F32));
    rms.set_autocast(false);
    let (flex, nd) = (flex(), ndarray());
    let refused = format!(
        "the weight is on {flex:?} and the input on {nd:?}, and autocast is off for this layer; turn it \
         on with `set_autocast(true)` or move one of them"
    );
    assert_eq!(message(norm.try_forward(input.clone())), refused);
    assert_eq!(message(rms.try_forward(input)), refused);
    let narrow = plain([3, 7], 3);
    let width = "the input has 7 features, the layer takes 8";
    assert_eq!(message(norm.try_forward(narrow.clone())), width);
    assert_eq!(message(rms.try_forward(narrow)), width);
}

/// A model of one norm.
struct Normed {
    norm: PatchedLayerNorm,
    names: NameTable,
}

impl LayerTree for Normed {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        visitor("norm", &self.norm);
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        visitor("norm", &mut self.norm);
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

#[test]
fn merging_into_a_norm_equals_mounting() {
    let set = patch_set(vec![("norm", patch().shared())]);
    let input = plain([3, WIDTH], 3);
    for dtype in [DType::F32, DType::BF16] {
        let mut names = NameTable::default();
        names.add_layer("norm", WIDTH).expect("it is new");
        let norm = PatchedLayerNorm::from_burn(layer(dtype), EPSILON);
        let mut model = Normed { norm, names };
        let base = bits(&model.norm.forward(input.clone()));
        mount(&mut model, "test", &set, 0.5).expect("it fits");
        let expected = model.norm.forward(input.clone());
        model.norm.clear_patches();
        merge(&mut model, &[("test", &set, 0.5)]).expect("it fits");
        // Merged scale and shift are rounded once. The shift is below 1.5, so what the scale yields is
        // below the largest output and as much.
        let rounding = roundoff(dtype) * (largest(&expected) + 2.0 * 1.5);
        assert_close(
            "merged",
            &model.norm.forward(input.clone()),
            &expected,
            rounding + TOLERANCE,
        );
        restore(&mut model);
        assert_eq!(bits(&model.norm.forward(input.clone())), base);
    }
}
