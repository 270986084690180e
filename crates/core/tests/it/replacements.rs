//! Patches that replace a parameter, and patches that read what a base cannot show.

use burn::tensor::Device;
use overglaze_core::{
    Error, KeyOutcome, LayerLimits, LayerState, LayerTree, MountReport, Mounting, NameTable,
    PatchedLayer, PatchedLinear, Placement, WeightRef, mount, mounted, swap, unmount,
};
use overglaze_patches::{LayerShape, PatchSet, Replaced};

use crate::{
    numbers::{lora, message, packed, plain},
    test_patch::TestPatch,
    toy::{lora_adapter, patch_set, resident},
};

const SHAPE: [usize; 2] = [6, 8];
const LAYERS: [(&str, &str, [usize; 2]); 2] = [("a", "F32", SHAPE), ("b", "F32", SHAPE)];

fn replacing(weight: bool, bias: bool, path: &str) -> PatchSet {
    let delta = TestPatch::new(Some(plain(SHAPE, 30)), Some(plain([6], 31)));
    patch_set(vec![(
        path,
        delta.replacing(Replaced { weight, bias }).shared(),
    )])
}

#[test]
fn two_replacements_of_one_parameter_are_refused_with_names() {
    let input = plain([3, SHAPE[1]], 3);
    let expected = |parameter: &str| {
        format!(
            "the adapters `old` and `new` both replace the {parameter} of layer `a`, and only one can; unmount \
             one of them"
        )
    };
    for (old, new, parameter) in [
        ([true, false], [true, false], "weight"),
        ([true, true], [true, true], "weight"),
        ([false, true], [true, true], "bias"),
    ] {
        for placement in [Placement::Sidecar, Placement::Direct] {
            let mut toy = resident(&LAYERS);
            let old = replacing(old[0], old[1], "a");
            let new = replacing(new[0], new[1], "a");
            let placed = |name, set| Mounting::new(name, set, 1.0).with_placement(placement);
            swap(&mut toy, &[], &[placed("old", &old)]).expect("it fits");
            let before = toy.output_bits(&input);
            let refused = mount(&mut toy, "new", &new, 1.0);
            assert_eq!(message(refused), expected(parameter));
            let swapped = swap(&mut toy, &[], &[placed("new", &new)]);
            assert_eq!(message(swapped), expected(parameter));
            assert_eq!(toy.output_bits(&input), before);
            assert_eq!(mounted(&toy).len(), 1);
            // One that leaves makes room, and so does another layer.
            swap(&mut toy, &["old"], &[placed("new", &new)]).expect("the old one leaves");
            unmount(&mut toy, "new").expect("it is mounted");
        }
    }
    let mut toy = resident(&LAYERS);
    let (weight, bias) = (replacing(true, false, "a"), replacing(false, true, "a"));
    let elsewhere = replacing(true, true, "b");
    let both = [("old", &weight, 1.0), ("new", &weight, 1.0)];
    assert_eq!(message(swap(&mut toy, &[], &both)), expected("weight"));
    assert!(mounted(&toy).is_empty());
    let apart = [
        ("x", &weight, 1.0),
        ("y", &bias, 1.0),
        ("z", &elsewhere, 1.0),
    ];
    swap(&mut toy, &[], &apart).expect("no parameter is replaced twice");
    let lora = lora_adapter(&[("a", SHAPE, 40)]);
    mount(&mut toy, "added", &lora, 1.0).expect("adding to a replaced parameter has a meaning");
    let patch = TestPatch::new(None, None).replacing(Replaced {
        weight: true,
        bias: false,
    });
    let added = toy.layers[0].add_patch("new", patch.shared(), 1.0);
    assert!(message(added).starts_with("the adapters `x` and `new` both replace the weight"));
}

/// One linear layer that lets nobody see its weight.
struct Closed {
    layer: ClosedLinear,
    names: NameTable,
}

struct ClosedLinear(PatchedLinear);

impl Closed {
    fn new() -> Self {
        let layer = PatchedLinear::from_weights(packed("f32", SHAPE, 1), None, Device::flex());
        let mut names = NameTable::default();
        names.add_layer("fc", SHAPE[0]).expect("there is no other");
        Self {
            layer: ClosedLinear(layer),
            names,
        }
    }
}

impl PatchedLayer for ClosedLinear {
    fn state(&self) -> &LayerState {
        self.0.state()
    }

    fn state_mut(&mut self) -> &mut LayerState {
        self.0.state_mut()
    }

    fn layer_shape(&self) -> LayerShape {
        self.0.layer_shape()
    }

    fn has_bias(&self) -> bool {
        self.0.has_bias()
    }

    fn limits(&self) -> LayerLimits {
        LayerLimits {
            shows_values: false,
            ..LayerLimits::default()
        }
    }

    fn device(&self) -> Device {
        self.0.device()
    }

    fn acquire_base(&self) -> Result<WeightRef, Error> {
        self.0.acquire_base()
    }
}

impl LayerTree for Closed {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        visitor("fc", &self.layer);
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        visitor("fc", &mut self.layer);
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

#[test]
fn a_patch_that_reads_a_base_that_shows_nothing_is_refused_by_name() {
    let mut tree = Closed::new();
    let reads = patch_set(vec![("fc", TestPatch::gain(0.5).shared())]);
    let why = "a test patch needs the values of the base weight, but only its shape can be read; mount it on a \
               checkpoint whose weight can be decoded";
    let refused = mount(&mut tree, "gain", &reads, 1.0);
    let expected = format!(
        "adapter `gain` does not fit this model: none of its 1 keys could be applied; the first: `fc`: {why}"
    );
    assert_eq!(message(refused), expected);
    let added = tree
        .layer
        .add_patch("gain", TestPatch::gain(0.5).shared(), 1.0);
    assert_eq!(message(added), why);
    let lora = patch_set(vec![("fc", lora(SHAPE, 2, 20))]);
    let MountReport { targets } = mount(&mut tree, "lora", &lora, 1.0).expect("it reads nothing");
    assert!(matches!(targets[0].outcome, KeyOutcome::Applied { .. }));
    assert_eq!(mounted(&tree).len(), 1);
}
