//! Adapters on quantized, narrow and streamed bases: rows of the list of bugs met elsewhere.

use std::sync::Arc;

use burn::tensor::{DType, FloatDType, Tensor};
use overglaze_core::{
    BaseWeights, LoaderConfig, Mounting, PatchedLayer, PatchedLinear, Placement, Weight, mount,
    mounted, swap, unmount,
};
use overglaze_patches::PatchSet;

use crate::{
    numbers::{
        assert_close, bits, flex, largest, lora, lora_delta, packed, plain, roundoff, tensor,
        values,
    },
    test_patch::TestPatch,
    toy::{Toy, lora_adapter, patch_set, source},
};

const SHAPE: [usize; 2] = [32, 32];
const PATHS: [&str; 3] = ["l.0", "l.1", "l.2"];
const LAYER: u64 = 4 * 32 * 32 + 4 * 32;

fn input() -> Tensor<2> {
    plain([4, 32], 3)
}

fn load(config: LoaderConfig) -> (Toy, BaseWeights) {
    let layers = ["F32", "BF16", "Q8_0"];
    let layers: Vec<_> = PATHS.into_iter().zip(layers).collect();
    let layers: Vec<_> = layers
        .into_iter()
        .map(|(path, tag)| (path, tag, SHAPE))
        .collect();
    Toy::load(Arc::new(source(&layers)), &PATHS, config).expect("every layer fits")
}

/// A budget of the largest layer alone: every other one is out of memory while one computes.
fn smallest() -> LoaderConfig {
    LoaderConfig {
        lookahead: 0,
        poison_released: true,
        ..LoaderConfig::streamed(flex(), LAYER)
    }
}

fn everywhere() -> PatchSet {
    lora_adapter(&[0, 1, 2].map(|index| (PATHS[index], SHAPE, 20 + 2 * index)))
}

/// As a DoRA does, it computes with the base's values.
fn reading() -> PatchSet {
    patch_set(
        PATHS
            .map(|path| (path, TestPatch::gain(0.25).shared()))
            .to_vec(),
    )
}

#[test]
fn d3_a_patch_that_reads_the_base_reads_a_streamed_one() {
    let outputs = |config: LoaderConfig| {
        let (mut toy, _) = load(config);
        let base = toy.output_bits(&input());
        mount(&mut toy, "reading", &reading(), 0.7).expect("it fits");
        [base, toy.output_bits(&input()), toy.output_bits(&input())]
    };
    let expected = outputs(LoaderConfig::resident(flex()));
    assert_ne!(expected[0], expected[1]);
    assert_eq!(outputs(smallest()), expected);
}

#[test]
fn d8_the_effect_on_a_quantized_base_is_proportional_to_the_strength() {
    let base = PatchedLinear::from_weights(packed("q8_0", SHAPE, 1), None, flex());
    // A step of the format is the largest value of a block over 127: ΔW is a tenth of it.
    let step = 1.0 / 127.0;
    let (delta, _) = lora_delta(SHAPE, 4, 20);
    let small = 0.1 * step / largest(&delta);
    let patch = TestPatch::new(Some(delta.clone().mul_scalar(small)), None);
    let set = patch_set(vec![("fc", patch.shared())]);
    let plain_output = base.forward(input());
    let effect = input().matmul(delta.mul_scalar(small).transpose());
    for strength in [0.02_f32, 0.1, 0.5, 1.0, 1.5] {
        for placement in [Placement::Sidecar, Placement::Automatic] {
            let mut toy = Toy::new(vec![("fc", base.clone())]);
            let mounting = Mounting::new("set", &set, strength).with_placement(placement);
            swap(&mut toy, &[], &[mounting]).expect("it fits");
            assert!(mounted(&toy)[0].direct_layers.is_empty(), "it is a sidecar");
            let found = toy.layers[0].forward(input()) - plain_output.clone();
            let expected = effect.clone().mul_scalar(strength);
            // One rounding of the sum with the base's output, in f32.
            let tolerance = 2.0 * roundoff(DType::F32) * largest(&plain_output);
            assert!(
                largest(&expected) > 10.0 * tolerance,
                "strength {strength} shows"
            );
            assert_close(
                &format!("strength {strength}"),
                &found,
                &expected,
                tolerance,
            );
        }
    }
}

#[test]
fn d13_dtypes_of_input_weight_and_patch_mix() {
    let dtypes = [DType::F32, DType::BF16, DType::F16];
    let (delta, bias) = lora_delta(SHAPE, 4, 20);
    for weight_dtype in dtypes {
        let weight = Weight::Dense(tensor(SHAPE, 1, &flex(), weight_dtype));
        let base = PatchedLinear::from_weights(weight, None, flex());
        for patch_dtype in [FloatDType::F32, FloatDType::BF16, FloatDType::F16] {
            let patch = lora(SHAPE, 4, 20).to_device(&flex(), patch_dtype);
            let mut layer = base.clone();
            layer.add_patch("lora", patch, 0.5).expect("it fits");
            for input_dtype in dtypes {
                let case = format!("{input_dtype:?}, {weight_dtype:?}, {patch_dtype:?}");
                let input: Tensor<2> = input().cast(input_dtype);
                let output = layer.forward(input.clone());
                assert_eq!(output.dtype(), input_dtype, "{case}");
                let wide = input.cast(DType::F32);
                let residual =
                    wide.clone().matmul(delta.clone().transpose()) + bias.clone().unsqueeze();
                let expected = base.forward(wide) + residual.clone().mul_scalar(0.5);
                // The patch's own values are rounded once, and the sum is.
                let patch_rounding = 3.0 * roundoff(patch_dtype.into()) * 32.0;
                let tolerance =
                    roundoff(input_dtype) * largest(&expected) + 0.5 * patch_rounding + 1e-4;
                assert_close(&case, &output, &expected, tolerance);
            }
        }
    }
}

#[test]
fn d18_an_adapter_mounted_after_streaming_began_has_its_effect() {
    let (mut resident, _) = load(LoaderConfig::resident(flex()));
    let base = resident.output_bits(&input());
    mount(&mut resident, "lora", &everywhere(), 0.7).expect("it fits");
    let expected = resident.output_bits(&input());
    assert_ne!(expected, base);
    for passes_before in [0, 1, 3] {
        let (mut toy, _) = load(smallest());
        for _ in 0..passes_before {
            assert_eq!(toy.output_bits(&input()), base);
        }
        mount(&mut toy, "lora", &everywhere(), 0.7).expect("it fits");
        assert_eq!(
            toy.output_bits(&input()),
            expected,
            "{passes_before} passes"
        );
        unmount(&mut toy, "lora").expect("it is mounted");
        assert_eq!(toy.output_bits(&input()), base);
    }
}

#[test]
fn d19_a_layer_that_is_not_in_memory_has_its_logical_shape_and_is_never_merged_into() {
    let (mut toy, base) = load(smallest());
    for layer in &toy.layers {
        assert_eq!(layer.weight_shape(), SHAPE, "nothing is loaded to tell it");
    }
    let streamer = base.streamer.as_ref().expect("it is streamed");
    let set = everywhere();
    let mounting = Mounting::new("lora", &set, 0.7).with_placement(Placement::Automatic);
    swap(&mut toy, &[], &[mounting]).expect("it fits");
    assert_eq!(streamer.stats().loads, 0, "a mount loads nothing");
    assert!(mounted(&toy)[0].direct_layers.is_empty());
    let (mut resident, _) = load(LoaderConfig::resident(flex()));
    mount(&mut resident, "lora", &set, 0.7).expect("it fits");
    assert_eq!(toy.output_bits(&input()), resident.output_bits(&input()));
    assert_eq!(base.traffic.written_bytes(), 0);
}

#[test]
fn d20_no_streamed_layer_skips_its_patch() {
    let (mut toy, _) = load(smallest());
    let outputs = |toy: &Toy| -> Vec<Vec<u32>> {
        let layers = toy.layers.iter();
        layers.map(|layer| bits(&layer.forward(input()))).collect()
    };
    let before = outputs(&toy);
    mount(&mut toy, "lora", &everywhere(), 1.0).expect("it fits");
    for _ in 0..3 {
        for (index, output) in outputs(&toy).into_iter().enumerate() {
            assert_ne!(output, before[index], "layer {index}");
            let patched = values(&toy.layers[index].forward(input()));
            assert!(patched.iter().all(|value| value.is_finite()));
        }
    }
}
