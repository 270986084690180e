//! Unmodified Burn modules with our patches, through Burn's reparameterization hook.

use std::sync::Arc;

use burn::{
    module::{Lora, Module, Param},
    nn::{
        Embedding, EmbeddingConfig, GroupNorm, GroupNormConfig, LayerNorm, LayerNormConfig, Linear,
        LinearConfig, RmsNorm, RmsNormConfig,
        conv::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig},
    },
    tensor::{DType, Int, Tensor},
};
use overglaze_core::{
    KeyOutcome, LayerTree, Mounting, PatchReparam, PatchedConv1d, PatchedConv2d, PatchedConv3d,
    PatchedEmbedding, PatchedGroupNorm, PatchedLayer, PatchedLayerNorm, PatchedLinear,
    PatchedModule, PatchedRmsNorm, Placement, mount, mounted, reweight, swap, unmount,
};
use overglaze_patches::{Patch, PatchSet};

use crate::{
    numbers::{assert_close, bits, flex, lora, message, plain, tensor, values},
    test_patch::TestPatch,
    toy::{lora_adapter, patch_set},
};

const SHAPE: [usize; 2] = [6, 8];
/// Sums of at most 36 products of numbers below 1 in f32, in another order.
const TOLERANCE: f32 = 5e-5;

/// A layer of every type, at the ends of every sort of container.
#[derive(Module, Debug)]
struct Net {
    fc: Linear,
    blocks: Vec<Block>,
    choice: Choice,
    pair: (Embedding, RmsNorm),
    absent: Option<Linear>,
}

#[derive(Module, Debug)]
struct Block {
    narrow: Conv1d,
    grouped: Conv2d,
    deep: Conv3d,
    norm: LayerNorm,
}

#[derive(Module, Debug)]
enum Choice {
    Norm(GroupNorm),
    Linear(Linear),
}

fn param<const D: usize>(shape: [usize; D], seed: usize) -> Param<Tensor<D>> {
    Param::from_tensor(plain(shape, seed))
}

fn linear(dtype: DType) -> Linear {
    let mut linear = LinearConfig::new(SHAPE[1], SHAPE[0]).init(&flex());
    linear.weight = Param::from_tensor(tensor([SHAPE[1], SHAPE[0]], 1, &flex(), dtype));
    linear.bias = Some(Param::from_tensor(tensor([SHAPE[0]], 2, &flex(), dtype)));
    linear
}

fn block() -> Block {
    let mut narrow = Conv1dConfig::new(2, 4, 3).init(&flex());
    (narrow.weight, narrow.bias) = (param([4, 2, 3], 4), Some(param([4], 5)));
    let grouped = Conv2dConfig::new([4, 6], [3, 3]).with_groups(2);
    let mut grouped = grouped.init(&flex());
    (grouped.weight, grouped.bias) = (param([6, 2, 3, 3], 6), Some(param([6], 7)));
    let mut deep = Conv3dConfig::new([2, 3], [2, 2, 2]).init(&flex());
    (deep.weight, deep.bias) = (param([3, 2, 2, 2, 2], 8), Some(param([3], 9)));
    let mut norm = LayerNormConfig::new(8).init(&flex());
    (norm.gamma, norm.beta) = (param([8], 10), Some(param([8], 11)));
    Block {
        narrow,
        grouped,
        deep,
        norm,
    }
}

fn net() -> Net {
    let mut norm = GroupNormConfig::new(2, 4).init(&flex());
    (norm.gamma, norm.beta) = (Some(param([4], 12)), Some(param([4], 13)));
    let mut embedding = EmbeddingConfig::new(5, 8).init(&flex());
    embedding.weight = param([5, 8], 14);
    let mut rms = RmsNormConfig::new(8).init(&flex());
    rms.gamma = param([8], 15);
    Net {
        fc: linear(DType::F32),
        blocks: vec![block(), block()],
        choice: Choice::Norm(norm),
        pair: (embedding, rms),
        absent: None,
    }
}

/// Every layer with its matrix and whether it has a bias.
const LAYERS: [(&str, [usize; 2], bool); 12] = [
    ("blocks.0.deep", [3, 16], true),
    ("blocks.0.grouped", [6, 18], true),
    ("blocks.0.narrow", [4, 6], true),
    ("blocks.0.norm", [8, 1], true),
    ("blocks.1.deep", [3, 16], true),
    ("blocks.1.grouped", [6, 18], true),
    ("blocks.1.narrow", [4, 6], true),
    ("blocks.1.norm", [8, 1], true),
    ("choice", [4, 1], true),
    ("fc", SHAPE, true),
    ("pair.0", [5, 8], false),
    ("pair.1", [8, 1], false),
];

fn patches_of(shape: [usize; 2], has_bias: bool) -> Vec<(&'static str, Arc<dyn Patch>, f32)> {
    let bias = has_bias.then(|| plain([shape[0]], 31));
    let plain = TestPatch::new(Some(plain(shape, 30)), bias);
    let gain = TestPatch::gain(0.5);
    vec![
        ("plain", plain.shared(), 0.7),
        ("gain", gain.shared(), -1.0),
    ]
}

fn sets() -> Vec<(&'static str, PatchSet, f32)> {
    let set = |index: usize| {
        let patches = LAYERS.map(|(path, shape, has_bias)| {
            let (_, patch, _) = patches_of(shape, has_bias).remove(index);
            (path, patch)
        });
        patch_set(patches.to_vec())
    };
    vec![("plain", set(0), 0.7), ("gain", set(1), -1.0)]
}

fn with_patches<L: PatchedLayer>(mut layer: L) -> L {
    let (shape, has_bias) = (layer.weight_shape(), layer.has_bias());
    for (name, patch, strength) in patches_of(shape, has_bias) {
        layer.add_patch(name, patch, strength).expect("it fits");
    }
    layer
}

fn ids() -> Tensor<2, Int> {
    Tensor::from_data([[0, 3, 1], [4, 4, 2]], &flex())
}

fn group_norm(net: &Net) -> GroupNorm {
    match &net.choice {
        Choice::Norm(norm) => norm.clone(),
        Choice::Linear(_) => unreachable!("the net has a norm"),
    }
}

/// Every layer's output, flattened.
fn outputs(net: &Net) -> Vec<Tensor<1>> {
    let flat = |tensor: Tensor<3>| tensor.flatten(0, 2);
    let mut outputs = vec![
        flat(net.fc.forward(plain([2, 3, 8], 3))),
        flat(net.pair.0.forward(ids())),
        flat(net.pair.1.forward(plain([2, 3, 8], 3))),
        group_norm(net).forward(plain([2, 4, 3], 3)).flatten(0, 2),
    ];
    for block in &net.blocks {
        outputs.push(flat(block.narrow.forward(plain([2, 2, 5], 3))));
        outputs.push(block.grouped.forward(plain([1, 4, 5, 5], 3)).flatten(0, 3));
        outputs.push(block.deep.forward(plain([1, 2, 3, 3, 3], 3)).flatten(0, 4));
        outputs.push(flat(block.norm.forward(plain([2, 3, 8], 3))));
    }
    outputs
}

/// The same of the patched wrappers over the same layers.
fn wrapped(net: &Net) -> Vec<Tensor<1>> {
    let flat = |tensor: Tensor<3>| tensor.flatten(0, 2);
    let input = || plain([2, 3, 8], 3);
    let fc = with_patches(PatchedLinear::from(net.fc.clone()));
    let embedding = with_patches(PatchedEmbedding::from(net.pair.0.clone()));
    let rms = with_patches(PatchedRmsNorm::from(net.pair.1.clone()));
    let group = with_patches(PatchedGroupNorm::from(group_norm(net)));
    let mut outputs: Vec<Tensor<1>> = vec![
        flat(fc.forward(input())),
        flat(embedding.forward(ids())),
        flat(rms.forward(input())),
        flat(group.forward(plain([2, 4, 3], 3))),
    ];
    for block in &net.blocks {
        let narrow = with_patches(PatchedConv1d::from(block.narrow.clone()));
        let grouped = with_patches(PatchedConv2d::from(block.grouped.clone()));
        let deep = with_patches(PatchedConv3d::from(block.deep.clone()));
        let norm = with_patches(PatchedLayerNorm::from_burn(block.norm.clone(), 1e-5));
        outputs.push(flat(narrow.forward(plain([2, 2, 5], 3))));
        outputs.push(grouped.forward(plain([1, 4, 5, 5], 3)).flatten(0, 3));
        outputs.push(deep.forward(plain([1, 2, 3, 3, 3], 3)).flatten(0, 4));
        outputs.push(flat(norm.forward(input())));
    }
    outputs
}

fn all_bits(outputs: &[Tensor<1>]) -> Vec<Vec<u32>> {
    outputs.iter().map(bits).collect()
}

#[test]
fn every_layer_is_found_by_its_type_and_path() {
    let tree = PatchedModule::over(net()).expect("its names are distinct");
    let mut found = Vec::new();
    tree.visit_layers(&mut |path, layer| {
        found.push((path.to_owned(), layer.weight_shape(), layer.has_bias()));
    });
    let expected = LAYERS.map(|(path, shape, has_bias)| (path.to_owned(), shape, has_bias));
    assert_eq!(found, expected);
    let operators = |path: &str| {
        let mut operator = None;
        tree.visit_layers(&mut |name, layer| {
            if name == path {
                operator = Some(layer.layer_shape().to_string());
            }
        });
        operator.expect("it is found")
    };
    assert_eq!(operators("pair.0"), "embedding [5, 8]");
    assert_eq!(operators("fc"), "linear layer [6, 8]");
    assert_eq!(operators("blocks.1.grouped"), "convolution [6, 2, 3, 3]");
    assert_eq!(operators("choice"), "norm [4]");
}

#[test]
fn every_layer_gives_what_its_wrapper_gives() {
    let sets = sets();
    for placement in [Placement::Sidecar, Placement::Direct, Placement::Automatic] {
        let mut tree = PatchedModule::over(net()).expect("its names are distinct");
        let mountings = sets.iter().map(|(name, set, strength)| {
            Mounting::new(name, set, *strength).with_placement(placement)
        });
        let mountings: Vec<_> = mountings.collect();
        let reports = swap(&mut tree, &[], &mountings).expect("they fit");
        assert!(reports.iter().all(|report| report.keys_unmatched() == 0));
        let patched = tree.apply();
        let (found, expected) = (outputs(&patched), wrapped(&net()));
        let bare = outputs(&net());
        assert_eq!(found.len(), 12);
        for (index, found) in found.iter().enumerate() {
            let case = format!("{placement:?}, layer {index}");
            assert_close(&case, found, &expected[index], TOLERANCE);
            assert_ne!(values(found), values(&bare[index]), "{case}");
        }
        // Every patched parameter is asked through the hook, its stored value is the base's.
        let weight = &patched.blocks[1].grouped.weight;
        assert!(weight.reparameterization::<PatchReparam>().is_some());
        assert_eq!(
            bits(&weight.base()),
            bits(&net().blocks[1].grouped.weight.val())
        );
    }
}

#[test]
fn removing_gives_back_the_original_and_unmounting_its_bits() {
    let original = net();
    let before = all_bits(&outputs(&original));
    let id = original.blocks[0].deep.weight.id;
    let mut tree = PatchedModule::over(original).expect("its names are distinct");
    assert_eq!(all_bits(&outputs(&tree.apply())), before);
    for (name, set, strength) in &sets() {
        mount(&mut tree, name, set, *strength).expect("it fits");
    }
    let patched = tree.apply();
    let with_both = all_bits(&outputs(&patched));
    assert_ne!(with_both, before);
    reweight(&mut tree, "gain", 0.0).expect("it is mounted");
    reweight(&mut tree, "plain", 0.0).expect("it is mounted");
    assert_eq!(all_bits(&outputs(&tree.apply())), before, "strength 0");
    unmount(&mut tree, "gain").expect("it is mounted");
    unmount(&mut tree, "plain").expect("it is mounted");
    assert!(mounted(&tree).is_empty());
    assert_eq!(all_bits(&outputs(&tree.apply())), before);
    assert_eq!(
        all_bits(&outputs(&patched)),
        with_both,
        "what was made stays"
    );
    let removed = tree.remove();
    assert_eq!(all_bits(&outputs(&removed)), before);
    let weight = &removed.blocks[0].deep.weight;
    assert!(weight.reparameterization::<PatchReparam>().is_none());
    assert_eq!(weight.id, id, "the parameter is the one that was given");
}

#[test]
fn narrow_dtypes_are_rounded_once() {
    let mut tree = PatchedModule::over(linear(DType::BF16)).expect("there is one layer");
    let delta = TestPatch::new(Some(plain(SHAPE, 30)), Some(plain([6], 31)));
    let set = patch_set(vec![("", delta.shared())]);
    let mut weights = Vec::new();
    for placement in [Placement::Sidecar, Placement::Direct] {
        let mounting = Mounting::new("set", &set, 1.0).with_placement(placement);
        swap(&mut tree, &[], &[mounting]).expect("it fits");
        let patched = tree.apply();
        let (weight, bias) = (
            patched.weight.val(),
            patched.bias.expect("it has one").val(),
        );
        assert_eq!([weight.dtype(), bias.dtype()], [DType::BF16; 2]);
        let base = linear(DType::BF16).weight.val().cast(DType::F32);
        let expected = (base + plain(SHAPE, 30).transpose()).cast(DType::BF16);
        assert_eq!(bits(&weight), bits(&expected));
        weights.push((bits(&weight), bits(&bias)));
        unmount(&mut tree, "set").expect("it is mounted");
    }
    assert_eq!(weights[0], weights[1]);
}

#[test]
fn adapters_find_their_layers_by_name_and_misfits_are_reported() {
    let mut tree = PatchedModule::over(net()).expect("its names are distinct");
    let set = lora_adapter(&[("fc", SHAPE, 20), ("fd", SHAPE, 22), ("choice", [4, 1], 24)]);
    let report = mount(&mut tree, "lora", &set, 1.0).expect("one fits");
    let names: Vec<_> = report
        .targets
        .iter()
        .map(|one| one.outcome.name())
        .collect();
    let applied = report.targets.iter().filter(|one| one.target == "fc");
    assert!(
        applied
            .into_iter()
            .all(|one| one.outcome.name() == "applied"),
        "{names:?}"
    );
    assert_eq!(report.keys_applied(), 2);
    let [_, norm, missing] = ["fc", "choice", "fd"].map(|target| {
        let found = report.targets.iter().find(|one| one.target == target);
        found.expect("every target is reported").outcome.clone()
    });
    assert!(matches!(norm, KeyOutcome::Refused { .. }), "{norm:?}");
    assert!(
        matches!(missing, KeyOutcome::Unmatched { .. }),
        "{missing:?}"
    );
    let bare = net();
    let patched = tree.apply();
    let input = plain([3, 8], 3);
    assert_ne!(
        bits(&patched.fc.forward(input.clone())),
        bits(&bare.fc.forward(input))
    );
}

#[test]
fn a_bias_residual_needs_a_bias_to_go_to() {
    let mut net = net();
    net.fc.bias = None;
    let mut tree = PatchedModule::over(net).expect("its names are distinct");
    let only_bias = TestPatch::new(None, Some(plain([6], 31))).shared();
    for patch in [lora(SHAPE, 2, 20), only_bias.clone()] {
        let refused = mount(&mut tree, "set", &patch_set(vec![("fc", patch)]), 1.0);
        let message = message(refused);
        assert!(
            message.contains("`fc`: a ") && message.contains("Burn's hook cannot add one"),
            "{message}"
        );
    }
    let mut tree = PatchedModule::over(self::net()).expect("its names are distinct");
    mount(&mut tree, "bias", &patch_set(vec![("fc", only_bias)]), 0.5).expect("it fits");
    let patched = tree.apply();
    let expected = plain::<1>([6], 2) + plain([6], 31).mul_scalar(0.5);
    let bias = patched.fc.bias.as_ref().expect("it has one").val();
    assert_eq!(bits(&bias), bits(&expected));
    let weight = patched.fc.weight.val();
    assert_eq!(bits(&weight), bits(&linear(DType::F32).weight.val()));
}

#[test]
fn a_reparameterized_parameter_is_refused_by_name() {
    let adapted = net().apply_lora(Lora::new(2, 4.0));
    let error = message(PatchedModule::over(adapted).map(drop));
    assert!(
        error.contains("has a reparameterization already"),
        "{error}"
    );
    assert!(error.starts_with("the parameter `fc.weight`"), "{error}");
}
