//! Group norms against Burn's, with patched scale and shift; and norms of a source.

use std::sync::Arc;

use burn::{
    module::Param,
    nn::{GroupNorm, GroupNormConfig},
    tensor::{DType, Tensor},
};
use overglaze_core::{
    LayerLoader, LoaderConfig, PatchedGroupNorm, PatchedLayer, PatchedRmsNorm, merge, mount,
    restore, unmount,
};
use overglaze_stream::MemorySource;

use crate::{
    numbers::{
        assert_close, bits, flex, largest, message, ndarray, plain, roundoff, stored, tensor,
        values, wave,
    },
    single::Single,
    test_patch::TestPatch,
    toy::patch_set,
};

const CHANNELS: usize = 6;
const EPSILON: f64 = 1e-4;

/// Means of thirty squares, a root and a quotient of numbers below 3, in f32.
const TOLERANCE: f32 = 1e-5;

fn burn_norm(dtype: DType) -> GroupNorm {
    let mut norm = GroupNormConfig::new(3, CHANNELS)
        .with_epsilon(EPSILON)
        .init(&flex());
    let param = |seed| Param::from_tensor(tensor::<1>([CHANNELS], seed, &flex(), dtype));
    (norm.gamma, norm.beta) = (Some(param(1)), Some(param(2)));
    norm
}

fn patch() -> TestPatch {
    TestPatch::new(Some(plain([CHANNELS, 1], 20)), Some(plain([CHANNELS], 21)))
}

fn check_bare<const D: usize>(dims: [usize; D]) {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let burn = burn_norm(dtype);
        let input: Tensor<D> = tensor(dims, 3, &flex(), dtype);
        let output = PatchedGroupNorm::from(burn).forward(input.clone());
        assert_eq!(output.dtype(), dtype);
        // Burn's own layer over the same values, in f32.
        let mut wide = burn_norm(dtype);
        wide.gamma = wide
            .gamma
            .map(|param| Param::from_tensor(param.val().cast(DType::F32)));
        wide.beta = wide
            .beta
            .map(|param| Param::from_tensor(param.val().cast(DType::F32)));
        let expected = wide.forward(input.cast(DType::F32));
        let tolerance = TOLERANCE + roundoff(dtype) * largest(&expected);
        assert_close(
            &format!("{dims:?}, {dtype:?}"),
            &output,
            &expected,
            tolerance,
        );
    }
}

#[test]
fn inputs_have_any_rank() {
    check_bare([2, CHANNELS]);
    check_bare([2, CHANNELS, 5]);
    check_bare([1, CHANNELS, 4, 3]);
    check_bare([2, CHANNELS, 2, 3, 1]);
}

#[test]
fn patches_change_scale_and_shift() {
    let input = plain([2, CHANNELS, 5], 3);
    for dtype in [DType::F32, DType::BF16] {
        let mut norm = PatchedGroupNorm::from(burn_norm(dtype));
        let before = bits(&norm.forward(input.clone()));
        norm.add_patch("test", patch().shared(), 0.5)
            .expect("it fits");
        norm.add_patch("gain", TestPatch::gain(1.0).shared(), -0.5)
            .expect("it fits");
        let mut expected = burn_norm(dtype);
        let param =
            |param: Option<Param<Tensor<1>>>| param.expect("it has one").val().cast(DType::F32);
        let (gamma, beta) = (param(expected.gamma), param(expected.beta));
        let scale = gamma.mul_scalar(0.5) + plain([CHANNELS], 20).mul_scalar(0.5);
        expected.gamma = Some(Param::from_tensor(scale));
        expected.beta = Some(Param::from_tensor(
            beta + plain([CHANNELS], 21).mul_scalar(0.5),
        ));
        let expected = expected.forward(input.clone());
        assert_close(
            "patched",
            &norm.forward(input.clone()),
            &expected,
            TOLERANCE,
        );
        norm.clear_patches();
        assert_eq!(bits(&norm.forward(input.clone())), before);
    }
}

#[test]
fn a_norm_without_scale_and_shift_takes_both_from_patches() {
    let burn = GroupNormConfig::new(3, CHANNELS)
        .with_affine(false)
        .init(&flex());
    let input = plain([2, CHANNELS, 5], 3);
    let expected = burn.forward(input.clone());
    let mut norm = PatchedGroupNorm::from(burn);
    assert_close("bare", &norm.forward(input.clone()), &expected, TOLERANCE);
    norm.add_patch("test", patch().shared(), 1.0)
        .expect("it fits");
    let scale = plain([CHANNELS], 20)
        .add_scalar(1.0)
        .reshape([1, CHANNELS, 1]);
    let expected = expected * scale + plain([CHANNELS], 21).reshape([1, CHANNELS, 1]);
    assert_close("patched", &norm.forward(input), &expected, TOLERANCE);
    norm.clear_patches();
    assert!(!norm.into_inner().expect("it is Burn's").affine);
}

#[test]
fn merging_equals_mounting_and_is_undone_exactly() {
    let input = plain([2, CHANNELS, 5], 3);
    let set = patch_set(vec![("layer", patch().shared())]);
    for dtype in [DType::F32, DType::BF16] {
        let mut model = Single::new(PatchedGroupNorm::from(burn_norm(dtype)));
        let base = bits(&model.layer.forward(input.clone()));
        mount(&mut model, "set", &set, 0.5).expect("it fits");
        let expected = model.layer.forward(input.clone());
        unmount(&mut model, "set").expect("it is there");
        merge(&mut model, &[("set", &set, 0.5)]).expect("it fits");
        // Scale and shift below 1.5 are rounded once.
        let tolerance = TOLERANCE + roundoff(dtype) * (largest(&expected) + 2.0 * 1.5);
        let merged = model.layer.forward(input.clone());
        assert_close("merged", &merged, &expected, tolerance);
        restore(&mut model);
        assert_eq!(bits(&model.layer.forward(input.clone())), base);
    }
}

#[test]
fn edges_of_the_input() {
    let norm = PatchedGroupNorm::from(burn_norm(DType::F32));
    assert_eq!(norm.forward(plain([0, CHANNELS, 5], 3)).dims(), [0, 6, 5]);
    assert_eq!(norm.forward(plain([2, CHANNELS, 0], 3)).dims(), [2, 6, 0]);
    let channels = "the input has 5 channels, the layer takes 6";
    assert_eq!(message(norm.try_forward(plain([2, 5, 3], 3))), channels);
    let channels = "the input has 0 channels, the layer takes 6";
    assert_eq!(message(norm.try_forward(plain([6], 3))), channels);
    for (groups, width) in [(4, 6), (0, 6), (1, 0)] {
        let norm = PatchedGroupNorm::from_affine(plain([width], 1), None, groups, EPSILON);
        let expected = format!(
            "{width} channels cannot be normalized in {groups} groups; expected a number of groups that \
             divides the channels"
        );
        assert_eq!(message(norm.try_forward(plain([2, width, 3], 3))), expected);
    }
    let nd: Tensor<3> = tensor([2, CHANNELS, 5], 3, &ndarray(), DType::F32);
    let moved = norm.forward(nd.clone());
    let expected = norm.forward(plain([2, CHANNELS, 5], 3));
    assert_close("moved", &moved, &expected, TOLERANCE);
    let mut still = norm;
    still.set_autocast(false);
    assert!(message(still.try_forward(nd)).contains("autocast is off"));
}

/// A scale and a shift called `norm` in bf16.
fn loader() -> LayerLoader {
    let mut source = MemorySource::new("norms.safetensors");
    for (name, seed) in [("norm.weight", 1), ("norm.bias", 2)] {
        let bytes = stored(&wave(&[CHANNELS], seed), "BF16");
        source
            .insert(name, "BF16", vec![CHANNELS], bytes)
            .expect("the size is right");
    }
    LayerLoader::new(Arc::new(source), LoaderConfig::resident(flex()))
}

#[test]
fn norms_of_a_source_keep_its_dtype() {
    let input = plain([2, CHANNELS, 5], 3);
    let group = loader()
        .group_norm("norm", 3, EPSILON)
        .expect("it is there");
    let expected = PatchedGroupNorm::from(burn_norm(DType::BF16));
    assert_eq!(
        bits(&group.forward(input.clone())),
        bits(&expected.forward(input))
    );
    assert_eq!(group.base_formats(), ["bf16", "bf16"]);
    let layer = loader().layer_norm("norm", EPSILON).expect("it is there");
    assert_eq!(layer.base_formats(), ["bf16", "bf16"]);
    let groups = message(loader().group_norm("norm", 4, EPSILON));
    assert_eq!(
        groups,
        "6 channels cannot be normalized in 4 groups; expected a number of groups that divides the \
         channels"
    );
    let missing = message(loader().group_norm("norms", 3, EPSILON));
    assert_eq!(
        missing,
        "norms.safetensors: tensor `norms.weight` is missing; the nearest name in it is `norm.weight`"
    );
}

#[test]
fn rms_norms_round_to_the_input_or_to_the_scale() {
    let mut loader = loader();
    let flux = loader
        .rms_norm("norm.weight", EPSILON)
        .expect("it is there");
    let diffusers = loader.diffusers_rms_norm("norm.weight", EPSILON);
    let diffusers = diffusers.expect("it is there");
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let input: Tensor<2> = tensor([3, CHANNELS], 3, &flex(), dtype);
        assert_eq!(flux.forward(input.clone()).dtype(), dtype);
        let output = diffusers.forward(input.clone());
        assert_eq!(output.dtype(), DType::BF16);
        let wide = flux.forward(input.cast(DType::F32));
        // Both compute in f32 over the same scale.
        assert_eq!(values(&output), values(&wide.cast(DType::BF16)));
    }
    let nd: Tensor<2> = tensor([3, CHANNELS], 3, &ndarray(), DType::F32);
    assert_eq!(diffusers.forward(nd).dtype(), DType::F32);
    let empty = diffusers.forward(tensor::<2>([0, CHANNELS], 3, &flex(), DType::F32));
    assert_eq!((empty.dims(), empty.dtype()), ([0, CHANNELS], DType::BF16));
    let none = PatchedRmsNorm::from_gamma(plain([0], 1), EPSILON, Arc::default());
    assert_eq!(none.forward(plain([2, 0], 3)).dims(), [2, 0]);
}
