//! Laying adapters over a model: the report of every key, all or nothing, swaps, fused and split names.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use overglaze_core::{
    Error, KeyOutcome, KeyReport, PatchedLayer, mount, mounted, reweight, swap, unmount,
};
use overglaze_patches::PatchSet;

use crate::{
    numbers::{lora, message, plain, wave},
    test_patch::TestPatch,
    toy::{Toy, adapter, lora_adapter, patch_set, piece, resident},
};

const SHAPE: [usize; 2] = [6, 8];
const LAYERS: [(&str, &str, [usize; 2]); 3] = [
    ("blocks.0.fc", "F32", SHAPE),
    ("blocks.1.fc", "BF16", SHAPE),
    ("proj_out", "F32", [4, 8]),
];

fn input() -> Tensor<2> {
    plain([3, SHAPE[1]], 3)
}

fn pair(up: [usize; 2], down: [usize; 2]) -> [TensorData; 2] {
    [wave(&up, 20), wave(&down, 21)]
}

/// One target of every fate.
fn mixed() -> PatchSet {
    let [up, down] = pair([6, 2], [2, 8]);
    let [wide_up, wide_down] = pair([4, 2], [2, 9]);
    adapter(vec![
        ("transformer.blocks.0.fc.lora_A.weight", down.clone()),
        ("transformer.blocks.0.fc.lora_B.weight", up.clone()),
        ("lora_unet_blocks_1_fc.lora_down.weight", down.clone()),
        ("lora_unet_blocks_1_fc.lora_up.weight", up.clone()),
        ("lora_unet_blocks_1_fc.alpha", TensorData::from([1.0_f32])),
        ("transformer.blocks.2.fc.lora_A.weight", down.clone()),
        ("transformer.blocks.2.fc.lora_B.weight", up.clone()),
        ("transformer.something_else.lora_A.weight", down.clone()),
        ("transformer.something_else.lora_B.weight", up),
        ("transformer.proj_out.lora_A.weight", wide_down),
        ("transformer.proj_out.lora_B.weight", wide_up),
        ("transformer.blocks.1.fc.lora_A.weight", down),
        ("what.is.this", wave(&[1], 1)),
    ])
}

fn target(target: &str, keys: &[&str], outcome: KeyOutcome) -> KeyReport {
    KeyReport {
        target: target.into(),
        keys: keys.iter().map(|key| String::from(*key)).collect(),
        outcome,
    }
}

fn applied(layer: &str) -> KeyOutcome {
    KeyOutcome::Applied {
        layers: vec![layer.into()],
    }
}

#[test]
fn every_key_is_accounted_for() {
    let mut toy = resident(&LAYERS);
    let report = mount(&mut toy, "mixed", &mixed(), 1.0).expect("two targets fit");
    let KeyOutcome::Refused { why } = &report.targets[5].outcome else {
        panic!("{:?}", report.targets);
    };
    assert!(why.contains("`blocks.1.fc`") && why.contains("lora_up.weight"), "{why}");
    let expected = [
        target(
            "blocks.0.fc",
            &["transformer.blocks.0.fc.lora_A.weight", "transformer.blocks.0.fc.lora_B.weight"],
            applied("blocks.0.fc"),
        ),
        target(
            "blocks.2.fc",
            &["transformer.blocks.2.fc.lora_A.weight", "transformer.blocks.2.fc.lora_B.weight"],
            KeyOutcome::Unmatched {
                nearest: vec!["blocks.0.fc".into(), "blocks.1.fc".into()],
            },
        ),
        target(
            "proj_out",
            &["transformer.proj_out.lora_A.weight", "transformer.proj_out.lora_B.weight"],
            KeyOutcome::ShapeMismatch {
                why: "the lora patch is for a weight of shape [4, 9], the layer has [4, 8]".into(),
            },
        ),
        target(
            "something_else",
            &[
                "transformer.something_else.lora_A.weight",
                "transformer.something_else.lora_B.weight",
            ],
            KeyOutcome::Unmatched {
                nearest: Vec::new(),
            },
        ),
        target(
            "blocks_1_fc",
            &[
                "lora_unet_blocks_1_fc.lora_down.weight",
                "lora_unet_blocks_1_fc.lora_up.weight",
                "lora_unet_blocks_1_fc.alpha",
            ],
            applied("blocks.1.fc"),
        ),
        target(
            "blocks.1.fc",
            &["transformer.blocks.1.fc.lora_A.weight"],
            KeyOutcome::Refused { why: why.clone() },
        ),
        target("what.is.this", &["what.is.this"], KeyOutcome::Unread),
    ];
    assert_eq!(report.targets, expected);
    assert_eq!((report.keys_applied(), report.keys_unmatched()), (5, 8));
    let first = "`blocks.2.fc`: the model has no layer of this name; nearest: blocks.0.fc, blocks.1.fc";
    assert_eq!(report.first_failure().as_deref(), Some(first));
    let nums: Vec<_> = toy.layers.iter().map(PatchedLayer::num_patches).collect();
    assert_eq!(nums, [1, 1, 0]);
}

#[test]
fn outcomes_have_names_and_reasons() {
    let why = String::from("because");
    let cases = [
        (applied("a"), "applied", "applied to a"),
        (
            KeyOutcome::Unmatched { nearest: vec![] },
            "unmatched",
            "the model has no layer of this name",
        ),
        (KeyOutcome::ShapeMismatch { why: why.clone() }, "shape mismatch", "because"),
        (KeyOutcome::Refused { why }, "refused", "because"),
        (KeyOutcome::Unread, "unread", "no dialect understands this key"),
    ];
    for (outcome, name, reason) in cases {
        assert_eq!((outcome.name(), outcome.reason().as_str()), (name, reason));
    }
}

#[test]
fn what_fails_leaves_the_model_as_it_was() {
    let mut toy = resident(&LAYERS);
    let good = lora_adapter(&[("blocks.0.fc", SHAPE, 20), ("proj_out", [4, 8], 30)]);
    let other = lora_adapter(&[("blocks.1.fc", SHAPE, 40)]);
    let foreign = lora_adapter(&[("blocks.7.fc", SHAPE, 20), ("proj_out", [4, 9], 30)]);
    let twice = {
        let [up, down] = pair([6, 2], [2, 8]);
        adapter(vec![
            ("transformer.blocks.0.fc.lora_A.weight", down.clone()),
            ("transformer.blocks.0.fc.lora_B.weight", up.clone()),
            ("lora_unet_blocks_0_fc.lora_down.weight", down),
            ("lora_unet_blocks_0_fc.lora_up.weight", up),
        ])
    };
    mount(&mut toy, "good", &good, 0.7).expect("it fits");
    let before = toy.output_bits(&input());
    let taken = "an adapter called `good` is mounted already; unmount it first or choose another name";
    let nowhere = "adapter `b` does not fit this model: none of its 4 keys could be applied; the first: \
                   `blocks.7.fc`: the model has no layer of this name; nearest: blocks.0.fc, blocks.1.fc";
    let overlap = "layer `blocks.0.fc`: rows 0..6 and 0..6 of one weight overlap";
    let absent = "no adapter called `b` is mounted; mounted: [\"good\"]";
    let strength = "the strength of adapter `b` is inf, expected a finite number";
    let infinity = f32::INFINITY;
    let cases = [
        (mount(&mut toy, "good", &other, 1.0).map(drop), taken),
        (mount(&mut toy, "b", &other, infinity).map(drop), strength),
        (mount(&mut toy, "b", &foreign, 1.0).map(drop), nowhere),
        (mount(&mut toy, "b", &twice, 1.0).map(drop), overlap),
        (swap(&mut toy, &["good"], &[("b", &foreign, 1.0)]).map(drop), nowhere),
        (swap(&mut toy, &["good"], &[("a", &other, 1.0), ("b", &foreign, 1.0)]).map(drop), nowhere),
        (swap(&mut toy, &["good", "b"], &[("a", &other, 1.0)]).map(drop), absent),
        (swap(&mut toy, &["good"], &[("b", &other, infinity)]).map(drop), strength),
        (swap(&mut toy, &[], &[("a", &other, 1.0), ("good", &good, 1.0)]).map(drop), taken),
        (unmount(&mut toy, "b"), absent),
        (reweight(&mut toy, "b", 1.0), absent),
        (reweight(&mut toy, "good", f32::NAN), &strength.replace("`b` is inf", "`good` is NaN")),
    ];
    for (result, expected) in cases {
        assert_eq!(message(result), expected);
    }
    assert_eq!(toy.output_bits(&input()), before);
    let adapters = mounted(&toy);
    assert_eq!(adapters.len(), 1);
    assert_eq!((adapters[0].name.as_str(), adapters[0].strength), ("good", 0.7));
    assert_eq!(adapters[0].layers, ["blocks.0.fc", "proj_out"]);
    let twins = swap(&mut toy, &[], &[("a", &other, 1.0), ("a", &good, 1.0)]);
    assert!(matches!(twins, Err(Error::NameTaken { .. })), "one name twice");
    let empty = message(mount(&mut toy, "b", &patch_set(vec![]), 1.0));
    assert_eq!(empty, "adapter `b` does not fit this model: it holds no patches");
}

#[test]
fn swaps_and_weights_never_count_twice() {
    let sets = [
        lora_adapter(&[("blocks.0.fc", SHAPE, 20), ("blocks.1.fc", SHAPE, 22)]),
        lora_adapter(&[("blocks.1.fc", SHAPE, 40), ("proj_out", [4, 8], 42)]),
    ];
    let fresh = |sets: &[(&str, &PatchSet, f32)]| {
        let mut toy = resident(&LAYERS);
        for (name, set, strength) in sets {
            mount(&mut toy, name, set, *strength).expect("it fits");
        }
        toy.output_bits(&input())
    };
    let [a, b] = &sets;
    let base = fresh(&[]);
    let mut toy = resident(&LAYERS);
    mount(&mut toy, "a", a, 1.0).expect("it fits");
    assert_eq!(toy.output_bits(&input()), fresh(&[("a", a, 1.0)]));
    assert_ne!(toy.output_bits(&input()), base);
    swap(&mut toy, &["a"], &[("a", a, 1.0)]).expect("a name that leaves is free");
    assert_eq!(toy.output_bits(&input()), fresh(&[("a", a, 1.0)]));
    let reports = swap(&mut toy, &["a"], &[("b", b, 0.5), ("c", a, -0.3)]).expect("they fit");
    assert_eq!(reports.len(), 2);
    assert_eq!(toy.output_bits(&input()), fresh(&[("b", b, 0.5), ("c", a, -0.3)]));
    reweight(&mut toy, "b", 2.0).expect("it is mounted");
    assert_eq!(toy.output_bits(&input()), fresh(&[("b", b, 2.0), ("c", a, -0.3)]));
    unmount(&mut toy, "b").expect("it is mounted");
    assert_eq!(toy.output_bits(&input()), fresh(&[("c", a, -0.3)]));
    swap(&mut toy, &["c"], &[]).expect("it is mounted");
    assert_eq!(toy.output_bits(&input()), base);
    assert!(mounted(&toy).is_empty());
}

const D: usize = 8;
const FUSED: [(&str, &str, [usize; 2]); 1] = [("attn.qkv", "F32", [3 * D, D])];

/// The model with one fused weight, and the one that keeps its thirds apart, with the same weights.
fn layouts() -> [Toy; 2] {
    let names = ["attn.to_q", "attn.to_k", "attn.to_v"];
    let rows = |index: usize| index * D..(index + 1) * D;
    let mut fused = resident(&FUSED);
    for (index, name) in names.into_iter().enumerate() {
        fused = fused.with_alias(name, vec![piece("attn.qkv", rows(index), 0..D)]);
    }
    let (weight, bias) = fused.layers[0].base_values(&crate::numbers::flex()).expect("it is resident");
    let bias = bias.expect("it has a bias");
    let third = |index: usize| {
        let weight = weight.clone().slice([rows(index), 0..D]);
        let bias = bias.clone().slice([rows(index)]);
        let weight = overglaze_core::Weight::Dense(weight);
        overglaze_core::PatchedLinear::from_weights(weight, Some(bias), crate::numbers::flex())
    };
    let split = Toy::new(names.iter().enumerate().map(|(index, name)| (*name, third(index))).collect());
    let pieces = names.iter().enumerate();
    let pieces = pieces.map(|(index, name)| piece(name, 0..D, rows(index))).collect();
    [fused, split.with_alias("attn.qkv", pieces)]
}

/// Outputs `[3, 3 · D]` of both layouts as rows: the thirds one after another.
fn thirds(toy: &Toy) -> Vec<f32> {
    let outputs: Vec<_> = toy.layers.iter().map(|layer| layer.forward(plain([3, D], 3))).collect();
    crate::numbers::values(&Tensor::cat(outputs, 1))
}

fn check_layouts(set: &PatchSet, layers: [&[&str]; 2], touched: std::ops::Range<usize>) {
    let outputs = layouts().iter_mut().zip(layers).map(|(toy, layers)| {
        let base = thirds(toy);
        let report = mount(toy, "set", set, 0.5).expect("it fits");
        assert_eq!(report.keys_unmatched(), 0);
        assert_eq!(mounted(toy)[0].layers, layers);
        let output = thirds(toy);
        for (index, (base, output)) in base.iter().zip(&output).enumerate() {
            assert!(touched.contains(&(index % (3 * D))) || base == output, "value {index}");
        }
        assert_ne!(base, output);
        output
    });
    let outputs: Vec<_> = outputs.collect();
    for (fused, split) in outputs[0].iter().zip(&outputs[1]) {
        // Sums of eight products of numbers below 1, in two orders.
        assert!((fused - split).abs() < 1e-5, "{fused} and {split}");
    }
}

#[test]
fn fused_and_split_models_take_each_others_adapters() {
    let parts = lora_adapter(&[("attn.to_q", [D, D], 20), ("attn.to_v", [D, D], 30)]);
    check_layouts(&parts, [&["attn.qkv"], &["attn.to_q", "attn.to_v"]], 0..3 * D);
    let key = lora_adapter(&[("attn.to_k", [D, D], 20)]);
    check_layouts(&key, [&["attn.qkv"], &["attn.to_k"]], D..2 * D);
    let split = ["attn.to_q", "attn.to_k", "attn.to_v"];
    let whole = lora_adapter(&[("attn.qkv", [3 * D, D], 20)]);
    check_layouts(&whole, [&["attn.qkv"], &split], 0..3 * D);
    let whole = TestPatch::new(Some(plain([3 * D, D], 20)), Some(plain([3 * D], 21)));
    check_layouts(&patch_set(vec![("attn.qkv", whole.shared())]), [&["attn.qkv"], &split], 0..3 * D);
    let gain = patch_set(vec![("attn.to_k", TestPatch::gain(2.0).shared())]);
    check_layouts(&gain, [&["attn.qkv"], &["attn.to_k"]], D..2 * D);
}

#[test]
fn a_patch_that_cannot_be_cut_is_refused_at_mount() {
    let [mut fused, mut split] = layouts();
    let set = patch_set(vec![("attn.qkv", TestPatch::gain(2.0).shared())]);
    mount(&mut fused, "gain", &set, 1.0).expect("the weight is whole");
    let expected = "adapter `gain` does not fit this model: none of its 1 keys could be applied; the \
                    first: `attn.qkv`: a test patch reads the whole fused weight and cannot be cut to \
                    its rows 0..8; mount it on a checkpoint that keeps the weight fused";
    assert_eq!(message(mount(&mut split, "gain", &set, 1.0)), expected);
}

#[test]
fn an_alias_may_swap_the_halves_of_a_layer() {
    let shape = [2 * D, D];
    let halves = vec![piece("norm.linear", D..2 * D, 0..D), piece("norm.linear", 0..D, D..2 * D)];
    let mut toy = resident(&[("norm.linear", "F32", shape)]).with_alias("adaln.1", halves);
    let base = toy.layers[0].forward(plain([3, D], 3));
    let set = patch_set(vec![("adaln.1", lora(shape, 2, 20))]);
    let report = mount(&mut toy, "halves", &set, 1.0).expect("it fits");
    assert_eq!(report.keys_applied(), 1);
    let residual = toy.layers[0].forward(plain([3, D], 3)) - base;
    let mut straight = resident(&[("norm.linear", "F32", shape)]);
    straight.layers[0].add_patch("lora", Arc::clone(&set.entries[0].patch), 1.0).expect("it fits");
    let base = resident(&[("norm.linear", "F32", shape)]).layers[0].forward(plain([3, D], 3));
    let expected = straight.layers[0].forward(plain([3, D], 3)) - base;
    let [top, bottom] = [0..D, D..2 * D].map(|columns| expected.clone().slice([0..3, columns]));
    let expected = Tensor::cat(vec![bottom, top], 1);
    crate::numbers::assert_close("halves", &residual, &expected, 1e-5);
}
