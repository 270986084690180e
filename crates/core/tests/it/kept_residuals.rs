//! Summed residuals: computed once for a mounted set, counted against the budget, never disturbing a clone.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};
use overglaze_core::{
    BaseWeights, LoaderConfig, PatchedLayer, PatchedLinear, mount, mounted, reweight, unmount,
};

use crate::{
    numbers::{bits, flex, ndarray, packed, plain, tensor},
    test_patch::TestPatch,
    toy::{Toy, lora_adapter, patch_set, source},
};

const SHAPE: [usize; 2] = [32, 32];
const PATHS: [&str; 3] = ["a", "b", "c"];
/// Bytes of a layer, and of a residual ΔW.
const LAYER: u64 = 4 * 32 * 32 + 4 * 32;
const DELTA: usize = 4 * 32 * 32;

fn input() -> Tensor<2> {
    plain([4, 32], 3)
}

fn toy(config: LoaderConfig) -> (Toy, BaseWeights) {
    let layers = PATHS.map(|path| (path, "F32", SHAPE));
    Toy::load(Arc::new(source(&layers)), &PATHS, config).expect("every layer fits")
}

fn wide(seed: usize) -> TestPatch {
    TestPatch::new(Some(plain(SHAPE, seed)), None)
}

fn cached_bytes(toy: &Toy) -> usize {
    let adapters = mounted(toy);
    adapters
        .first()
        .map_or(0, |adapter| adapter.footprint.cached_bytes)
}

#[test]
fn a_residual_is_computed_again_when_the_mounted_set_changes() {
    let (mut toy, _) = toy(LoaderConfig::resident(flex()));
    let patch = wide(30);
    let set = patch_set(vec![("a", patch.shared())]);
    let other = lora_adapter(&[("a", SHAPE, 40)]);
    let changes: [fn(&mut Toy, &overglaze_patches::PatchSet); 4] = [
        |toy, other| drop(mount(toy, "other", other, 1.0).expect("it fits")),
        |toy, _| reweight(toy, "other", 0.5).expect("it is mounted"),
        |toy, _| reweight(toy, "set", 0.5).expect("it is mounted"),
        |toy, _| unmount(toy, "other").expect("it is mounted"),
    ];
    mount(&mut toy, "set", &set, 1.0).expect("it fits");
    assert_eq!(patch.uses.num_deltas(), 0, "mounting computes nothing");
    let mut seen = vec![toy.output_bits(&input())];
    for (index, change) in changes.into_iter().enumerate() {
        for _ in 0..3 {
            assert_eq!(&toy.output_bits(&input()), &seen[index]);
            assert_eq!(patch.uses.num_deltas(), index + 1, "once for each set");
        }
        change(&mut toy, &other);
        seen.push(toy.output_bits(&input()));
        assert_ne!(seen[index], seen[index + 1]);
    }
    // The other layers' adapters do not matter to this one.
    let elsewhere = lora_adapter(&[("b", SHAPE, 40)]);
    mount(&mut toy, "elsewhere", &elsewhere, 1.0).expect("it fits");
    let _ = toy.outputs(&input());
    assert_eq!(patch.uses.num_deltas(), 5);
}

#[test]
fn clones_share_a_residual_and_part_when_one_changes() {
    let (mut first, _) = toy(LoaderConfig::resident(flex()));
    let patch = wide(30);
    mount(
        &mut first,
        "set",
        &patch_set(vec![("a", patch.shared())]),
        1.0,
    )
    .expect("it fits");
    let mut second = first.clone();
    let expected = first.output_bits(&input());
    assert_eq!(second.output_bits(&input()), expected);
    assert_eq!(patch.uses.num_deltas(), 1, "computed by one, used by both");
    reweight(&mut second, "set", -1.0).expect("it is mounted");
    assert_ne!(second.output_bits(&input()), expected);
    assert_eq!(patch.uses.num_deltas(), 2);
    unmount(&mut second, "set").expect("it is mounted");
    assert_eq!(first.output_bits(&input()), expected);
    assert_eq!(patch.uses.num_deltas(), 2, "the first still has its own");
}

#[test]
fn another_device_has_its_own_residual() {
    let (mut toy, _) = toy(LoaderConfig::resident(flex()));
    let patch = wide(30);
    mount(
        &mut toy,
        "set",
        &patch_set(vec![("a", patch.shared())]),
        1.0,
    )
    .expect("it fits");
    let elsewhere: Tensor<2> = tensor([4, 32], 3, &ndarray(), DType::F32);
    let _ = toy.layers[0].forward(elsewhere.clone());
    let _ = toy.layers[0].forward(elsewhere);
    assert_eq!(patch.uses.num_deltas(), 1);
    let _ = toy.layers[0].forward(input());
    assert_eq!(patch.uses.num_deltas(), 2);
    assert_eq!(cached_bytes(&toy), DELTA, "one is kept at a time");
}

#[test]
fn kept_bytes_count_against_the_budget_and_without_room_nothing_is_kept() {
    let sets: Vec<_> = (0..3).map(|index| wide(30 + index)).collect();
    let run = |config: LoaderConfig| {
        let (mut toy, base) = toy(config);
        for (patch, path) in sets.iter().zip(PATHS) {
            mount(
                &mut toy,
                path,
                &patch_set(vec![(path, patch.shared())]),
                0.7,
            )
            .expect("it fits");
        }
        let before: usize = sets.iter().map(|patch| patch.uses.num_deltas()).sum();
        let outputs = [(); 3].map(|()| toy.output_bits(&input()));
        let after: usize = sets.iter().map(|patch| patch.uses.num_deltas()).sum();
        (outputs, after - before, toy, base)
    };
    let kept_bytes = |toy: &Toy| -> usize {
        let adapters = mounted(toy);
        adapters.iter().map(|one| one.footprint.cached_bytes).sum()
    };
    let (expected, ..) = run(LoaderConfig::resident(flex()));
    // Half of what is left beside one layer: nothing, one residual, and all three.
    for (budget, num_kept) in [
        (LAYER, 0),
        (LAYER + 2 * DELTA as u64, 1),
        (3 * LAYER + 6 * DELTA as u64, 3),
    ] {
        let config = LoaderConfig {
            poison_released: true,
            // What is loaded ahead may have the room of a residual, which then waits for a later pass.
            lookahead: 0,
            ..LoaderConfig::streamed(flex(), budget)
        };
        let (outputs, num_deltas, toy, base) = run(config);
        assert_eq!(outputs, expected, "residency changes no bit");
        let kept = kept_bytes(&toy);
        assert_eq!(kept, num_kept * DELTA);
        assert!(
            num_deltas >= num_kept + 3 * (3 - num_kept),
            "budget {budget}"
        );
        let streamer = base.streamer.expect("it is streamed");
        let ledger = streamer.ledger();
        assert_eq!(ledger.reserved_bytes(), kept as u64);
        assert!(ledger.live_bytes() + ledger.reserved_bytes() <= budget);
        drop(toy);
        assert_eq!(ledger.reserved_bytes(), 0, "nothing holds it any more");
    }
}

#[test]
fn a_resident_model_keeps_as_many_bytes_as_its_weights_have() {
    // Packed to about a quarter: the weights of three layers have room for no residual, those of ten for two.
    for (num_layers, num_kept) in [(3, 0), (10, 2)] {
        let names: Vec<_> = (0..num_layers).map(|index| format!("l.{index}")).collect();
        let paths: Vec<_> = names.iter().map(String::as_str).collect();
        let layers: Vec<_> = paths.iter().map(|path| (*path, "Q8_0", SHAPE)).collect();
        let loaded = Toy::load(
            Arc::new(source(&layers)),
            &paths,
            LoaderConfig::resident(flex()),
        );
        let (mut toy, base) = loaded.expect("it loads");
        let patches = paths.iter().map(|path| (*path, wide(30).shared()));
        mount(&mut toy, "set", &patch_set(patches.collect()), 1.0).expect("they fit");
        let first = toy.output_bits(&input());
        assert_eq!(toy.output_bits(&input()), first);
        assert_eq!(cached_bytes(&toy), num_kept * DELTA);
        assert!(cached_bytes(&toy) as u64 <= base.num_bytes);
    }
}

#[test]
fn a_packed_base_is_decoded_once_however_many_patches_read_it() {
    let mut layer = PatchedLinear::from_weights(packed("q8_0", SHAPE, 1), None, flex());
    let count = |layer: &PatchedLinear| layer.traffic().num_decodes();
    for (index, name) in ["x", "y", "z"].into_iter().enumerate() {
        let patch = TestPatch::gain(0.1).shared();
        layer.add_patch(name, patch, 1.0).expect("it fits");
        let first = bits(&layer.forward(input()));
        assert_eq!(count(&layer), index as u64 + 1);
        assert_eq!(bits(&layer.forward(input())), first);
        assert_eq!(count(&layer), index as u64 + 1, "and not in the next pass");
    }
}

#[test]
fn a_streamed_base_is_decoded_once_a_pass_without_room() {
    let (mut toy, base) = toy(LoaderConfig::streamed(flex(), LAYER));
    for name in ["x", "y"] {
        let patch = TestPatch::gain(0.1).shared();
        toy.layers[1].add_patch(name, patch, 1.0).expect("it fits");
    }
    for pass in 1..=3 {
        let _ = toy.layers[1].forward(input());
        assert_eq!(base.traffic.num_decodes(), pass);
    }
}
