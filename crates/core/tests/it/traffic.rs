//! The counters of base bytes: silent for mounting, loud for every copy to another device.

use burn::tensor::{DType, FloatDType};
use overglaze_core::{
    PatchedLayer, PatchedLinear, PatchedRmsNorm, Traffic, Weight, merge, mount, reweight, unmount,
};

use crate::{
    numbers::{flex, ndarray, packed, plain, tensor},
    test_patch::TestPatch,
    toy::{Toy, lora_adapter, patch_set},
};

const SHAPE: [usize; 2] = [6, 8];
const WEIGHT_BYTES: u64 = 4 * 48;
const BIAS_BYTES: u64 = 4 * 6;

fn toy() -> Toy {
    let weight = Weight::Dense(plain(SHAPE, 1));
    let layer = PatchedLinear::from_weights(weight, Some(plain([6], 2)), flex());
    Toy::new(vec![("fc", layer)])
}

/// Written bytes, moved bytes and moves.
fn counts(traffic: &Traffic) -> [u64; 3] {
    [
        traffic.written_bytes(),
        traffic.moved_bytes(),
        traffic.num_moves(),
    ]
}

#[test]
fn mounting_running_and_unmounting_move_nothing() {
    let mut toy = toy();
    let gain = patch_set(vec![("fc", TestPatch::gain(0.5).shared())]);
    mount(&mut toy, "lora", &lora_adapter(&[("fc", SHAPE, 20)]), 1.0).expect("it fits");
    mount(&mut toy, "gain", &gain, 1.0).expect("it fits");
    let _ = toy.outputs(&plain([3, 8], 3));
    reweight(&mut toy, "gain", 0.3).expect("it is mounted");
    let _ = toy.outputs(&plain([3, 8], 3));
    unmount(&mut toy, "lora").expect("it is mounted");
    unmount(&mut toy, "gain").expect("it is mounted");
    assert_eq!(counts(toy.layers[0].traffic()), [0; 3]);
}

#[test]
fn values_asked_for_on_another_device_are_counted() {
    let mut toy = toy();
    let both = WEIGHT_BYTES + BIAS_BYTES;
    let _ = toy.layers[0].base_values(&flex()).expect("it is resident");
    assert_eq!(counts(toy.layers[0].traffic()), [0; 3]);
    let _ = toy.layers[0]
        .base_values(&ndarray())
        .expect("it is resident");
    assert_eq!(counts(toy.layers[0].traffic()), [0, both, 2]);
    merge(
        &mut toy,
        &[("lora", &lora_adapter(&[("fc", SHAPE, 20)]), 1.0)],
    )
    .expect("it fits");
    assert_eq!(counts(toy.layers[0].traffic()), [both, both, 2]);
    let merged = toy.layers[0].effective_values(&ndarray());
    drop(merged.expect("it is resident"));
    assert_eq!(counts(toy.layers[0].traffic()), [both, 2 * both, 4]);
    let norm = PatchedRmsNorm::from_gamma(plain([8], 1), 1e-6, std::sync::Arc::default());
    let _ = norm.base_values(&ndarray()).expect("it is resident");
    assert_eq!(counts(norm.traffic()), [0, 4 * 8, 1]);
}

#[test]
fn a_patch_that_wants_the_values_elsewhere_is_counted() {
    let mut toy = toy();
    let gain = patch_set(vec![("fc", TestPatch::gain(0.5).shared())]);
    mount(&mut toy, "gain", &gain, 1.0).expect("it fits");
    let _ = toy.outputs(&tensor([3, 8], 3, &ndarray(), DType::F32));
    // One copy of the weight serves the product and the patch.
    let moved = WEIGHT_BYTES + BIAS_BYTES;
    assert_eq!(counts(toy.layers[0].traffic()), [0, moved, 2]);
}

#[test]
fn a_dense_copy_is_counted_where_it_crosses() {
    let traffic = Traffic::default();
    let dense = Weight::Dense(plain(SHAPE, 1));
    let _ = dense.to_dense(&flex(), FloatDType::BF16, &traffic);
    // Packed bytes are read in host memory, which both CPU backends have.
    let _ = packed("f32", SHAPE, 1).to_dense(&ndarray(), FloatDType::F32, &traffic);
    assert_eq!(counts(&traffic), [0; 3]);
    let _ = dense.to_dense(&ndarray(), FloatDType::F32, &traffic);
    assert_eq!(counts(&traffic), [0, WEIGHT_BYTES, 1]);
}
