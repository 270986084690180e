//! The patches of one layer: device copies, strengths and names.

use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};
use overglaze_core::{MountedStrength, Mounting, PatchedLayer, PatchedLinear, mounted};
use overglaze_patches::{BaseLayer, LayerShape, Patch};

use crate::{
    numbers::{bits, flex, lora, message, ndarray, packed, plain, tensor, values},
    test_patch::TestPatch,
    toy::{Toy, patch_set},
};

const SHAPE: [usize; 2] = [6, 8];

fn layer() -> PatchedLinear {
    PatchedLinear::from_weights(packed("f32", SHAPE, 1), Some(plain([6], 2)), flex())
}

fn run(layer: &PatchedLinear, device: &Device) -> Vec<u32> {
    bits(&layer.forward(tensor([3, SHAPE[1]], 3, device, DType::F32)))
}

fn copies(layer: &PatchedLinear) -> Vec<(Device, usize)> {
    layer
        .patches()
        .iter()
        .flat_map(|patch| patch.copies())
        .collect()
}

#[test]
fn the_copy_on_a_device_is_made_once_and_listed() {
    let patch = TestPatch::new(Some(plain(SHAPE, 4)), Some(plain([6], 5)));
    let num_bytes = 4 * (48 + 6);
    let mut layer = layer();
    layer
        .add_patch("test", patch.shared(), 1.0)
        .expect("it fits");
    assert!(
        copies(&layer).is_empty(),
        "nothing is copied before it is used"
    );
    for _ in 0..3 {
        run(&layer, &flex());
        assert_eq!(copies(&layer), [(flex(), num_bytes)]);
    }
    run(&layer.clone(), &ndarray());
    run(&layer, &ndarray());
    assert_eq!(
        patch.uses.num_copies(),
        (2, 2),
        "a clone of the layer shares its copies"
    );
    let toy = Toy::new(vec![("fc", layer)]);
    let adapters = mounted(&toy);
    assert_eq!(adapters.len(), 1);
    let adapter = &adapters[0];
    assert_eq!(
        (adapter.name.as_str(), adapter.strength.clone()),
        ("test", MountedStrength::Uniform(1.0))
    );
    assert_eq!(adapter.layers, ["fc"]);
    assert_eq!(adapter.footprint.loaded_bytes, num_bytes);
    let expected = [(flex(), num_bytes), (ndarray(), num_bytes)];
    assert_eq!(adapter.footprint.copies, expected);
}

/// The residual's bits and the size: all there is to see of a patch.
fn state(patch: &dyn Patch) -> (Vec<u32>, Vec<u32>, usize) {
    let shape = LayerShape::linear(SHAPE[0], SHAPE[1]);
    let base = BaseLayer::of_shape(&shape);
    let weight = patch.delta_weight(&base).expect("no values are needed");
    let bias = patch.delta_bias(&base).expect("no values are needed");
    (
        bits(&weight.expect("it changes the weight")),
        bits(&bias.expect("it changes the bias")),
        patch.num_bytes(),
    )
}

#[test]
fn the_loaded_patch_is_never_changed() {
    let patch = lora(SHAPE, 2, 20);
    let before = state(patch.as_ref());
    let mut layer = layer();
    layer
        .add_patch("lora", Arc::clone(&patch), 0.5)
        .expect("it fits");
    for device in [flex(), ndarray(), flex()] {
        run(&layer, &device);
        let found = layer.reweight_patch("lora", -1.0).expect("it is finite");
        assert!(found);
    }
    let mounted = layer.patches().iter().next().expect("it is mounted");
    assert!(Arc::ptr_eq(mounted.patch(), &patch));
    layer.clear_patches();
    assert_eq!(state(patch.as_ref()), before);
    assert!(before.0.iter().any(|value| *value != 0));
}

#[test]
fn unmounting_frees_the_copies() {
    let patch = TestPatch::new(Some(plain(SHAPE, 4)), None);
    let mut toy = Toy::new(vec![("fc", layer())]);
    let set = patch_set(vec![("fc", patch.shared())]);
    let removals: [fn(&mut Toy); 4] = [
        |toy| overglaze_core::unmount(toy, "test").expect("it is mounted"),
        |toy| assert!(toy.layers[0].remove_patch("test")),
        |toy| toy.layers[0].clear_patches(),
        |toy| drop(overglaze_core::swap::<Mounting<'_>>(toy, &["test"], &[])),
    ];
    for (index, remove) in removals.into_iter().enumerate() {
        overglaze_core::mount(&mut toy, "test", &set, 1.0).expect("it fits");
        run(&toy.layers[0], &ndarray());
        assert_eq!(patch.uses.num_copies(), (index + 1, 1));
        let tenant = toy.clone();
        remove(&mut toy);
        assert_eq!(
            patch.uses.num_copies(),
            (index + 1, 1),
            "the clone has it still"
        );
        drop(tenant);
        assert_eq!(patch.uses.num_copies(), (index + 1, 0));
    }
}

#[test]
fn a_strength_of_zero_makes_no_copy() {
    let patch = TestPatch::new(Some(plain(SHAPE, 4)), None);
    let mut layer = layer();
    let base = run(&layer, &flex());
    layer
        .add_patch("test", patch.shared(), 0.0)
        .expect("it fits");
    assert_eq!(run(&layer, &flex()), base);
    assert_eq!(patch.uses.num_copies(), (0, 0));
}

#[test]
fn strengths_scale_the_residual() {
    let input = plain([3, SHAPE[1]], 3);
    let mut layer = layer();
    let base = layer.forward(input.clone());
    layer
        .add_patch("lora", lora(SHAPE, 2, 20), 1.0)
        .expect("it fits");
    let full = values(&(layer.forward(input.clone()) - base.clone()));
    assert!(full.iter().any(|value| value.abs() > 0.1));
    for strength in [-1.0, 0.0, 0.5, 2.0] {
        let found = layer.reweight_patch("lora", strength);
        assert!(found.expect("it is finite"));
        let difference = values(&(layer.forward(input.clone()) - base.clone()));
        for (found, full) in difference.iter().zip(&full) {
            // The difference of two sums of eight products.
            assert!((found - strength * full).abs() < 1e-5, "{strength}");
        }
    }
    let found = layer.reweight_patch("other", 1.0);
    assert!(!found.expect("it is finite"));
    let before = run(&layer, &flex());
    for (strength, text) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let expected =
            format!("the strength of adapter `lora` is {text}, expected a finite number");
        assert_eq!(message(layer.reweight_patch("lora", strength)), expected);
    }
    assert_eq!(run(&layer, &flex()), before);
}

#[test]
fn patches_go_on_and_off_by_name() {
    let mut layer = layer();
    let base = run(&layer, &flex());
    layer.clear_patches();
    assert!(!layer.remove_patch("a"), "there is none");
    for name in ["a", "b", "c"] {
        layer
            .add_patch(name, lora(SHAPE, 2, 20), 1.0)
            .expect("it fits");
    }
    assert_eq!((layer.num_patches(), layer.patches().len()), (3, 3));
    assert!(layer.remove_patch("b"));
    let names: Vec<_> = layer
        .patches()
        .iter()
        .map(|patch| patch.adapter())
        .collect();
    assert_eq!(names, ["a", "c"]);
    assert!(layer.patches().has("a") && !layer.patches().has("b"));
    layer.clear_patches();
    assert!(layer.patches().is_empty());
    assert_eq!(run(&layer, &flex()), base);
}

#[test]
fn patches_that_cannot_be_laid_over_are_refused() {
    let mut layer = layer();
    layer
        .add_patch("a", lora(SHAPE, 2, 20), 1.0)
        .expect("it fits");
    let before = run(&layer, &flex());
    let wrong = TestPatch::new(Some(Tensor::zeros([5, 8], &flex())), None);
    let cases = [
        (
            layer.add_patch("a", lora(SHAPE, 2, 30), 1.0),
            "an adapter called `a` is mounted already; unmount it first or choose another name",
        ),
        (
            layer.add_patch("b", lora(SHAPE, 2, 30), f32::NAN),
            "the strength of adapter `b` is NaN, expected a finite number",
        ),
        (
            layer.add_patch("b", lora(SHAPE, 2, 30), f32::NEG_INFINITY),
            "the strength of adapter `b` is -inf, expected a finite number",
        ),
        (
            layer.add_patch("b", lora([6, 9], 2, 30), 1.0),
            "the lora patch is for a weight of shape [6, 9], the layer has [6, 8]",
        ),
        (
            layer.add_patch("b", wrong.shared(), 1.0),
            "the test patch is for a weight of shape [5, 8], the layer has [6, 8]",
        ),
    ];
    for (result, expected) in cases {
        assert_eq!(message(result), expected);
    }
    assert_eq!(layer.num_patches(), 1);
    assert_eq!(run(&layer, &flex()), before);
}
