//! Laying adapters over a model: the report of every key, all or nothing, swaps.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use overglaze_core::{
    Error, KeyOutcome, KeyReport, MountedStrength, Mounting, PatchedLayer, mount, mounted,
    reweight, swap, unmount,
};
use overglaze_patches::{Component, PatchSet, TextEncoder};

use crate::{
    numbers::{lora, message, plain, wave},
    toy::{adapter, lora_adapter, patch_set, piece, resident},
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
        ("transformer.blocks.9.fc.lora_A.weight", down),
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
#[expect(clippy::too_many_lines, reason = "a table, one case after another")]
fn every_key_is_accounted_for() {
    let mut toy = resident(&LAYERS);
    let report = mount(&mut toy, "mixed", &mixed(), 1.0).expect("two targets fit");
    let KeyOutcome::Refused { why } = &report.targets[5].outcome else {
        panic!("{:?}", report.targets);
    };
    assert!(
        why.contains("`blocks.9.fc`") && why.contains("lora_up.weight"),
        "{why}"
    );
    let expected = [
        target(
            "blocks.0.fc",
            &[
                "transformer.blocks.0.fc.lora_A.weight",
                "transformer.blocks.0.fc.lora_B.weight",
            ],
            applied("blocks.0.fc"),
        ),
        target(
            "blocks.2.fc",
            &[
                "transformer.blocks.2.fc.lora_A.weight",
                "transformer.blocks.2.fc.lora_B.weight",
            ],
            KeyOutcome::Unmatched {
                nearest: vec!["blocks.0.fc".into(), "blocks.1.fc".into()],
            },
        ),
        target(
            "proj_out",
            &[
                "transformer.proj_out.lora_A.weight",
                "transformer.proj_out.lora_B.weight",
            ],
            KeyOutcome::ShapeMismatch {
                found: vec![4, 9],
                expected: vec![4, 8],
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
            "blocks.9.fc",
            &["transformer.blocks.9.fc.lora_A.weight"],
            KeyOutcome::Refused { why: why.clone() },
        ),
        target("what.is.this", &["what.is.this"], KeyOutcome::Unread),
    ];
    assert_eq!(report.targets, expected);
    assert_eq!((report.keys_applied(), report.keys_unmatched()), (5, 8));
    let first =
        "`blocks.2.fc`: the model has no layer of this name; nearest: blocks.0.fc, blocks.1.fc";
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
        (
            KeyOutcome::ShapeMismatch {
                found: vec![1, 2],
                expected: vec![1, 3],
                why: why.clone(),
            },
            "shape mismatch",
            "because",
        ),
        (
            KeyOutcome::NotLoaded {
                component: Component::TextEncoder(TextEncoder::T5),
            },
            "not loaded",
            "it is for a T5 text encoder, and this model does not hold the layer",
        ),
        (
            KeyOutcome::KindUnknown { why: why.clone() },
            "kind unknown",
            "because",
        ),
        (KeyOutcome::Refused { why }, "refused", "because"),
        (
            KeyOutcome::Unread,
            "unread",
            "no dialect understands this key",
        ),
    ];
    for (outcome, name, reason) in cases {
        assert_eq!((outcome.name(), outcome.reason().as_str()), (name, reason));
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table, one case after another")]
fn what_fails_leaves_the_model_as_it_was() {
    let mut toy = resident(&LAYERS);
    let good = lora_adapter(&[("blocks.0.fc", SHAPE, 20), ("proj_out", [4, 8], 30)]);
    let other = lora_adapter(&[("blocks.1.fc", SHAPE, 40)]);
    let foreign = lora_adapter(&[("blocks.7.fc", SHAPE, 20), ("proj_out", [4, 9], 30)]);
    mount(&mut toy, "good", &good, 0.7).expect("it fits");
    let before = toy.output_bits(&input());
    let taken =
        "an adapter called `good` is mounted already; unmount it first or choose another name";
    let nowhere = "adapter `b` does not fit this model: none of its 4 keys could be applied; the first: \
                   `blocks.7.fc`: the model has no layer of this name; nearest: blocks.0.fc, blocks.1.fc";
    let absent = "no adapter called `b` is mounted; mounted: [\"good\"]";
    let strength = "the strength of adapter `b` is inf, expected a finite number";
    let infinity = f32::INFINITY;
    let cases = [
        (mount(&mut toy, "good", &other, 1.0).map(drop), taken),
        (mount(&mut toy, "b", &other, infinity).map(drop), strength),
        (mount(&mut toy, "b", &foreign, 1.0).map(drop), nowhere),
        (
            swap(&mut toy, &["good"], &[("b", &foreign, 1.0)]).map(drop),
            nowhere,
        ),
        (
            swap(
                &mut toy,
                &["good"],
                &[("a", &other, 1.0), ("b", &foreign, 1.0)],
            )
            .map(drop),
            nowhere,
        ),
        (
            swap(&mut toy, &["good", "b"], &[("a", &other, 1.0)]).map(drop),
            absent,
        ),
        (
            swap(&mut toy, &["good"], &[("b", &other, infinity)]).map(drop),
            strength,
        ),
        (
            swap(&mut toy, &[], &[("a", &other, 1.0), ("good", &good, 1.0)]).map(drop),
            taken,
        ),
        (unmount(&mut toy, "b"), absent),
        (reweight(&mut toy, "b", 1.0), absent),
        (
            reweight(&mut toy, "good", f32::NAN),
            &strength.replace("`b` is inf", "`good` is NaN"),
        ),
    ];
    for (result, expected) in cases {
        assert_eq!(message(result), expected);
    }
    assert_eq!(toy.output_bits(&input()), before);
    let adapters = mounted(&toy);
    assert_eq!(adapters.len(), 1);
    assert_eq!(
        (adapters[0].name.as_str(), &adapters[0].strength),
        ("good", &MountedStrength::Uniform(0.7))
    );
    assert_eq!(adapters[0].layers, ["blocks.0.fc", "proj_out"]);
    let twins = swap(&mut toy, &[], &[("a", &other, 1.0), ("a", &good, 1.0)]);
    assert!(
        matches!(twins, Err(Error::NameTaken { .. })),
        "one name twice"
    );
    let empty = message(mount(&mut toy, "b", &patch_set(vec![]), 1.0));
    assert_eq!(
        empty,
        "adapter `b` does not fit this model: it holds no patches"
    );
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
    assert_eq!(
        toy.output_bits(&input()),
        fresh(&[("b", b, 0.5), ("c", a, -0.3)])
    );
    reweight(&mut toy, "b", 2.0).expect("it is mounted");
    assert_eq!(
        toy.output_bits(&input()),
        fresh(&[("b", b, 2.0), ("c", a, -0.3)])
    );
    unmount(&mut toy, "b").expect("it is mounted");
    assert_eq!(toy.output_bits(&input()), fresh(&[("c", a, -0.3)]));
    swap::<Mounting<'_>>(&mut toy, &["c"], &[]).expect("it is mounted");
    assert_eq!(toy.output_bits(&input()), base);
    assert!(mounted(&toy).is_empty());
}

#[test]
fn the_second_target_of_the_same_rows_is_refused() {
    let halves = patch_set(vec![
        ("half", lora([3, 8], 2, 20)),
        ("blocks.0.fc", lora(SHAPE, 2, 30)),
    ]);
    let rows = "of this file are both for rows 0..6 of layer `blocks.0.fc`; only the latter is laid over it";
    let half = || vec![piece("blocks.0.fc", 2..5, 0..3)];
    let mut toy = resident(&LAYERS).with_alias("half", half());
    let report = mount(&mut toy, "set", &halves, 1.0).expect("one target fits");
    let targets = report.targets.iter().map(|report| &*report.target);
    assert_eq!(targets.collect::<Vec<_>>(), ["half", "blocks.0.fc"]);
    assert_eq!(report.targets[0].outcome, applied("blocks.0.fc"));
    let why = format!("`blocks.0.fc` and `half` {rows}");
    assert_eq!(report.targets[1].outcome, KeyOutcome::Refused { why });
    assert_eq!(toy.layers[0].num_patches(), 1);
    let mut single = resident(&LAYERS).with_alias("half", half());
    let only = patch_set(vec![("half", Arc::clone(&halves.entries[0].patch))]);
    mount(&mut single, "set", &only, 1.0).expect("it fits");
    assert_eq!(toy.output_bits(&input()), single.output_bits(&input()));
}

#[test]
fn a_layer_in_two_spellings_is_laid_over_once() {
    let [up, down] = pair([6, 2], [2, 8]);
    let once = [
        ("transformer.blocks.0.fc.lora_A.weight", down.clone()),
        ("transformer.blocks.0.fc.lora_B.weight", up.clone()),
    ];
    let again = [
        ("lora_unet_blocks_0_fc.lora_down.weight", down),
        ("lora_unet_blocks_0_fc.lora_up.weight", up),
    ];
    let (mut toy, mut single) = (resident(&LAYERS), resident(&LAYERS));
    let set = adapter(once.iter().cloned().chain(again).collect());
    let report = mount(&mut toy, "set", &set, 1.0).expect("one layer fits");
    let outcomes = report.targets.iter().map(|target| target.outcome.name());
    assert_eq!(
        outcomes.collect::<Vec<_>>(),
        ["applied", "duplicate", "duplicate"]
    );
    mount(&mut single, "set", &adapter(once.into()), 1.0).expect("it fits");
    assert_eq!(toy.output_bits(&input()), single.output_bits(&input()));
}

#[test]
fn an_alias_that_has_rows_twice_is_an_error() {
    let twice = vec![
        piece("blocks.0.fc", 0..4, 0..4),
        piece("blocks.0.fc", 2..6, 4..8),
    ];
    let mut toy = resident(&LAYERS).with_alias("twice", twice);
    let before = toy.output_bits(&input());
    let set = patch_set(vec![("twice", lora([8, 8], 2, 20))]);
    let error = mount(&mut toy, "set", &set, 1.0).expect_err("the rows overlap");
    assert_eq!(
        error.to_string(),
        "the patches for layer `blocks.0.fc` cannot be laid side by side"
    );
    let cause = std::error::Error::source(&error).expect("there is a cause");
    let cause = cause.to_string();
    assert!(cause.starts_with("rows 0..4 and 2..6"), "{cause}");
    assert_eq!(toy.output_bits(&input()), before);
}
