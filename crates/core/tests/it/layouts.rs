//! Fused and split layouts of one weight, and names that swap the halves of a layer.

use std::{ops::Range, sync::Arc};

use burn::tensor::Tensor;
use overglaze_core::{PatchedLayer, PatchedLinear, Weight, mount, mounted};
use overglaze_patches::PatchSet;

use crate::{
    numbers::{assert_close, flex, lora, message, plain, values},
    test_patch::TestPatch,
    toy::{Toy, lora_adapter, patch_set, piece, resident},
};

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
    let (weight, bias) = fused.layers[0]
        .base_values(&flex())
        .expect("it is resident");
    let bias = bias.expect("it has a bias");
    let third = |index: usize| {
        let weight = weight.clone().slice([rows(index), 0..D]);
        let bias = bias.clone().slice([rows(index)]);
        let weight = Weight::Dense(weight);
        PatchedLinear::from_weights(weight, Some(bias), flex())
    };
    let split = Toy::new(
        names
            .iter()
            .enumerate()
            .map(|(index, name)| (*name, third(index)))
            .collect(),
    );
    let pieces = names.iter().enumerate();
    let pieces = pieces
        .map(|(index, name)| piece(name, 0..D, rows(index)))
        .collect();
    [fused, split.with_alias("attn.qkv", pieces)]
}

/// Outputs `[3, 3 · D]` of both layouts as rows: the thirds one after another.
fn thirds(toy: &Toy) -> Vec<f32> {
    let outputs: Vec<_> = toy
        .layers
        .iter()
        .map(|layer| layer.forward(plain([3, D], 3)))
        .collect();
    values(&Tensor::cat(outputs, 1))
}

fn check_layouts(set: &PatchSet, layers: [&[&str]; 2], touched: Range<usize>) {
    let mut toys = layouts();
    let outputs = toys.iter_mut().zip(layers).map(|(toy, layers)| {
        let base = thirds(toy);
        let report = mount(toy, "set", set, 0.5).expect("it fits");
        assert_eq!(report.keys_unmatched(), 0);
        assert_eq!(mounted(toy)[0].layers, layers);
        let output = thirds(toy);
        for (index, (base, output)) in base.iter().zip(&output).enumerate() {
            assert!(
                touched.contains(&(index % (3 * D))) || base == output,
                "value {index}"
            );
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
    check_layouts(
        &parts,
        [&["attn.qkv"], &["attn.to_q", "attn.to_v"]],
        0..3 * D,
    );
    let key = lora_adapter(&[("attn.to_k", [D, D], 20)]);
    check_layouts(&key, [&["attn.qkv"], &["attn.to_k"]], D..2 * D);
    let split = ["attn.to_q", "attn.to_k", "attn.to_v"];
    let whole = lora_adapter(&[("attn.qkv", [3 * D, D], 20)]);
    check_layouts(&whole, [&["attn.qkv"], &split], 0..3 * D);
    let whole = TestPatch::new(Some(plain([3 * D, D], 20)), Some(plain([3 * D], 21)));
    check_layouts(
        &patch_set(vec![("attn.qkv", whole.shared())]),
        [&["attn.qkv"], &split],
        0..3 * D,
    );
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
    let halves = vec![
        piece("norm.linear", D..2 * D, 0..D),
        piece("norm.linear", 0..D, D..2 * D),
    ];
    let mut toy = resident(&[("norm.linear", "F32", shape)]).with_alias("adaln.1", halves);
    let base = toy.layers[0].forward(plain([3, D], 3));
    let set = patch_set(vec![("adaln.1", lora(shape, 2, 20))]);
    let report = mount(&mut toy, "halves", &set, 1.0).expect("it fits");
    assert_eq!(report.keys_applied(), 1);
    let residual = toy.layers[0].forward(plain([3, D], 3)) - base;
    let mut straight = resident(&[("norm.linear", "F32", shape)]);
    straight.layers[0]
        .add_patch("lora", Arc::clone(&set.entries[0].patch), 1.0)
        .expect("it fits");
    let base = resident(&[("norm.linear", "F32", shape)]).layers[0].forward(plain([3, D], 3));
    let expected = straight.layers[0].forward(plain([3, D], 3)) - base;
    let [top, bottom] = [0..D, D..2 * D].map(|columns| expected.clone().slice([0..3, columns]));
    let expected = Tensor::cat(vec![bottom, top], 1);
    assert_close("halves", &residual, &expected, 1e-5);
}
