//! Direct, by sidecar, or by rule: the same output, and the base bit for bit afterwards.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};
use overglaze_core::{
    Error, LoaderConfig, MountedStrength, Mounting, PatchedLayer, PatchedLinear, Placement, Weight,
    merge, mount, mounted, restore, reweight, swap, unmount,
};
use overglaze_patches::PatchSet;

use crate::{
    numbers::{assert_close, flex, message, packed, plain, tensor},
    test_patch::TestPatch,
    toy::{Toy, lora_adapter, patch_set, source},
};

const SHAPE: [usize; 2] = [6, 32];

fn input() -> Tensor<2> {
    plain([5, SHAPE[1]], 3)
}

fn dense(dtype: DType) -> PatchedLinear {
    let weight = Weight::Dense(tensor(SHAPE, 1, &flex(), dtype));
    PatchedLinear::from_weights(weight, Some(plain([SHAPE[0]], 2)), flex())
}

fn one(layer: PatchedLinear) -> Toy {
    Toy::new(vec![("fc", layer)])
}

/// Three adapters: factors, a plain ΔW with a bias, and one that reads the base.
fn sets() -> [PatchSet; 3] {
    let wide = TestPatch::new(Some(plain(SHAPE, 30)), Some(plain([SHAPE[0]], 31)));
    [
        lora_adapter(&[("fc", SHAPE, 20)]),
        patch_set(vec![("fc", wide.shared())]),
        patch_set(vec![("fc", TestPatch::gain(0.5).shared())]),
    ]
}

fn directly(toy: &mut Toy, name: &str, set: &PatchSet, strength: f32) {
    let mounting = Mounting::new(name, set, strength).with_placement(Placement::Direct);
    swap(toy, &[], &[mounting]).expect("it fits");
}

#[test]
fn nested_direct_mounts_are_undone_in_any_order() {
    let sets = sets();
    let names = ["a", "b", "c"];
    let fresh = |dtype, mounted: &[usize]| {
        let mut toy = one(dense(dtype));
        for index in mounted {
            directly(&mut toy, names[*index], &sets[*index], 0.7);
        }
        toy.output_bits(&input())
    };
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for dtype in [DType::F32, DType::BF16] {
        let base = fresh(dtype, &[]);
        let all = fresh(dtype, &[0, 1, 2]);
        assert_ne!(all, base);
        for order in orders {
            let mut toy = one(dense(dtype));
            for index in order {
                directly(&mut toy, names[index], &sets[index], 0.7);
            }
            assert_eq!(toy.output_bits(&input()), all, "{order:?}");
            for (gone, index) in order.into_iter().enumerate() {
                unmount(&mut toy, names[index]).expect("it is mounted");
                let rest = &order[gone + 1..];
                assert_eq!(toy.output_bits(&input()), fresh(dtype, rest), "{order:?}");
            }
            assert!(mounted(&toy).is_empty(), "{order:?}");
        }
    }
}

#[test]
fn d17_twenty_merges_and_mounts_in_bf16_leave_every_bit_of_the_base() {
    let [lora, wide, gain] = sets();
    let mut toy = one(dense(DType::BF16));
    let bytes = |toy: &Toy| {
        let mut bytes = Vec::new();
        let visited = toy.layers[0].visit_base_bytes(&mut |part| bytes.extend_from_slice(part));
        visited.expect("it is resident");
        (bytes, toy.output_bits(&input()))
    };
    let before = bytes(&toy);
    for round in 0..20_u8 {
        let strength = 0.1 * f32::from(round + 1);
        merge(
            &mut toy,
            &[("lora", &lora, strength), ("gain", &gain, -strength)],
        )
        .expect("they fit");
        mount(&mut toy, "wide", &wide, strength).expect("it fits");
        assert_ne!(toy.output_bits(&input()), before.1);
        restore(&mut toy);
        unmount(&mut toy, "wide").expect("it is mounted");
        assert_eq!(bytes(&toy), before, "round {round}");
    }
}

#[test]
fn a_direct_strength_changes_without_a_remount() {
    let [lora, wide, _] = sets();
    let fresh = |strength| {
        let mut toy = one(dense(DType::F32));
        directly(&mut toy, "a", &lora, strength);
        directly(&mut toy, "b", &wide, 1.0);
        toy.output_bits(&input())
    };
    let mut toy = one(dense(DType::F32));
    directly(&mut toy, "a", &lora, 1.0);
    directly(&mut toy, "b", &wide, 1.0);
    let written = toy.layers[0].traffic().written_bytes();
    let bytes = 4 * (6 * 32 + 6);
    assert_eq!(written, 2 * bytes, "each mount writes the copy once");
    for strength in [0.5, -1.0, 1.0] {
        reweight(&mut toy, "a", strength).expect("it is mounted");
        assert_eq!(toy.output_bits(&input()), fresh(strength), "{strength}");
    }
    assert_eq!(toy.layers[0].traffic().written_bytes(), 5 * bytes);
    reweight(&mut toy, "b", 1.0).expect("it is mounted");
    assert_eq!(
        toy.layers[0].traffic().written_bytes(),
        5 * bytes,
        "nothing changed, nothing is written"
    );
}

#[test]
fn b18_strength_zero_is_not_mounted_directly_or_by_sidecar() {
    for set in &sets() {
        for placement in [Placement::Sidecar, Placement::Direct] {
            for dtype in [DType::F32, DType::BF16] {
                let mut toy = one(dense(dtype));
                let base = toy.output_bits(&input());
                let mounting = Mounting::new("a", set, 0.0).with_placement(placement);
                swap(&mut toy, &[], &[mounting]).expect("it fits");
                assert_eq!(toy.output_bits(&input()), base);
                assert_eq!(toy.layers[0].traffic().written_bytes(), 0);
                reweight(&mut toy, "a", 1.0).expect("it is mounted");
                assert_ne!(toy.output_bits(&input()), base);
                reweight(&mut toy, "a", 0.0).expect("it is mounted");
                assert_eq!(toy.output_bits(&input()), base);
            }
        }
    }
}

#[test]
fn sidecars_over_a_direct_patch_see_the_base() {
    let [lora, _, gain] = sets();
    let (mut mixed, mut side) = (one(dense(DType::F32)), one(dense(DType::F32)));
    directly(&mut mixed, "lora", &lora, 0.7);
    mount(&mut mixed, "gain", &gain, 0.5).expect("it fits");
    mount(&mut side, "lora", &lora, 0.7).expect("it fits");
    mount(&mut side, "gain", &gain, 0.5).expect("it fits");
    let expected = side.layers[0].forward(input());
    // Two sums of 32 products below 1 in other orders.
    assert_close("mixed", &mixed.layers[0].forward(input()), &expected, 2e-5);
    let adapters = mounted(&mixed);
    assert_eq!(adapters[0].name, "gain");
    assert!(adapters[0].direct_layers.is_empty());
    assert_eq!(adapters[1].direct_layers, ["fc"]);
    assert_eq!(adapters[1].strength, MountedStrength::Uniform(0.7));
    // The merged copy goes, the sidecar stays.
    restore(&mut mixed);
    unmount(&mut side, "lora").expect("it is mounted");
    assert_eq!(mixed.output_bits(&input()), side.output_bits(&input()));
}

#[test]
fn the_rule_puts_patches_directly_only_into_bare_resident_floats() {
    let [lora, wide, _] = sets();
    let streamed = Toy::load(
        Arc::new(source(&[("fc", "F32", SHAPE)])),
        &["fc"],
        LoaderConfig::streamed(flex(), 1 << 20),
    );
    let mut carrying = one(dense(DType::F32));
    mount(&mut carrying, "first", &wide, 1.0).expect("it fits");
    let mut merged = one(dense(DType::F32));
    directly(&mut merged, "first", &wide, 1.0);
    for (case, mut toy, is_direct) in [
        ("dense f32", one(dense(DType::F32)), true),
        ("dense bf16", one(dense(DType::BF16)), true),
        ("file bf16", over("bf16"), true),
        ("file f16", over("f16"), true),
        ("quantized", over("q8_0"), false),
        ("streamed", streamed.expect("it fits").0, false),
        ("carrying a sidecar", carrying, false),
        ("merged already", merged, true),
    ] {
        let mounting = Mounting::new("lora", &lora, 0.5).with_placement(Placement::Automatic);
        swap(&mut toy, &[], &[mounting]).expect("it fits");
        let adapters = mounted(&toy);
        let found = adapters.iter().find(|adapter| adapter.name == "lora");
        let found = &found.expect("it is mounted").direct_layers;
        assert_eq!(!found.is_empty(), is_direct, "{case}");
    }
}

fn over(format: &str) -> Toy {
    one(PatchedLinear::from_weights(
        packed(format, SHAPE, 1),
        None,
        flex(),
    ))
}

#[test]
fn direct_on_a_streamed_layer_changes_nothing_anywhere() {
    let layers = [("fc", "F32", SHAPE)];
    let (streamed, base) = Toy::load(
        Arc::new(source(&layers)),
        &["fc"],
        LoaderConfig::streamed(flex(), 1 << 20),
    )
    .expect("it fits");
    let streamed = streamed.layers.into_iter().next().expect("there is one");
    let mut toy = Toy::new(vec![("resident", dense(DType::F32)), ("fc", streamed)]);
    let [lora, ..] = sets();
    let both = lora_adapter(&[("resident", SHAPE, 20), ("fc", SHAPE, 30)]);
    mount(&mut toy, "old", &lora, 1.0).expect("it fits");
    let before = toy.output_bits(&input());
    let mounting = Mounting::new("both", &both, 1.0).with_placement(Placement::Direct);
    let result = swap(&mut toy, &["old"], &[mounting]);
    assert!(matches!(&result, Err(Error::MergeStreamed { layer }) if layer == "fc"));
    assert!(message(result).contains("`fc` is streamed under a budget"));
    assert_eq!(toy.output_bits(&input()), before);
    assert_eq!(mounted(&toy).len(), 1);
    assert_eq!(toy.layers[0].traffic().written_bytes(), 0);
    assert_eq!(base.traffic.written_bytes(), 0);
}
