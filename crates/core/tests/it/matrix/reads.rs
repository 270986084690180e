//! A base is read once: however many mounted patches want its values, a pass loads, moves and decodes it at most
//! once.

use burn::tensor::{DType, Tensor};
use overglaze_core::{PatchedConv2d, PatchedLayer, PatchedLinear, Weight, mount, reweight};

use super::{
    kinds::kind,
    layers::{TESTED, layer},
    model::Model,
};
use crate::{
    numbers::{bits, flex, ndarray, plain, tensor},
    toy::patch_set,
};

/// Kinds that read the base.
const READERS: [&str; 5] = [
    "dora by output",
    "dora by input",
    "dora over loha by output",
    "dora over glora by input",
    "glora",
];

fn mount_readers(model: &mut Model, name: &str) {
    let shape = layer(name).shape;
    for reader in READERS {
        let set = patch_set(vec![(TESTED, kind(reader).patch(&shape, DType::F32))]);
        mount(model, reader, &set, 0.3).expect("it fits");
    }
}

/// Layers, and how often a pass decodes their packed weight for its own product.
const LAYERS: [(&str, u64); 5] = [
    ("linear", 0),
    ("conv1d", 1),
    ("strided conv2d", 1),
    ("conv3d", 1),
    ("embedding", 1),
];

#[test]
fn five_patches_decode_a_packed_base_once() {
    for (name, own) in LAYERS {
        let mut model = Model::resident(&layer(name), "Q8_0");
        let decodes = |model: &Model| {
            let before = model.base.traffic.num_decodes();
            let output = model.layer().run(DType::F32, DType::F32);
            (model.base.traffic.num_decodes() - before, bits(&output))
        };
        let (num_bare, bare) = decodes(&model);
        assert_eq!(num_bare, own, "{name}, bare");
        mount_readers(&mut model, name);
        let (num_decodes, patched) = decodes(&model);
        assert_eq!(num_decodes, 1, "{name}");
        assert_ne!(patched, bare, "{name}");
        // The residual may be kept or not, for want of room.
        let (num_decodes, again) = decodes(&model);
        assert!((own..=1).contains(&num_decodes), "{name}: {num_decodes}");
        assert_eq!(again, patched, "{name}");
        // A new strength is a new residual.
        reweight(&mut model, READERS[0], 0.2).expect("it is mounted");
        assert_eq!(decodes(&model).0, 1, "{name}");
    }
}

#[test]
fn five_patches_load_a_streamed_base_once() {
    for (name, own) in LAYERS {
        let case = layer(name);
        let mut model = Model::streamed(&case, "BF16");
        let streamer = model.base.streamer.clone().expect("it is streamed");
        mount_readers(&mut model, name);
        let acquires = || {
            let stats = streamer.stats();
            stats.hits + stats.waits
        };
        for pass in 0..3 {
            let (before, decodes) = (acquires(), model.base.traffic.num_decodes());
            drop(model.output());
            assert_eq!(acquires() - before, 3, "{name}, pass {pass}: one a layer");
            let decodes = model.base.traffic.num_decodes() - decodes;
            let neighbours = 2 * own;
            assert!(
                decodes <= neighbours + 1,
                "{name}, pass {pass}: {decodes} decodes"
            );
        }
    }
}

/// Moves of one pass over an input on another device than the base's, with five patches, without and with a kept
/// residual.
fn moves(layer: &impl PatchedLayer, run: impl Fn() -> Tensor<1>) -> [u64; 2] {
    [(); 2].map(|()| {
        let before = layer.traffic().num_moves();
        assert!(bits(&run()).iter().any(|bits| *bits != 0));
        layer.traffic().num_moves() - before
    })
}

#[test]
fn five_patches_move_a_base_once() {
    let case = layer("linear");
    let [d_output, d_input] = case.shape.matrix();
    let (weight, bias) = (plain([d_output, d_input], 1), plain([d_output], 2));
    let mut linear = PatchedLinear::from_weights(Weight::Dense(weight), Some(bias), flex());
    add_readers(&mut linear);
    let input: Tensor<2> = tensor([3, d_input], 3, &ndarray(), DType::F32);
    let run = || linear.forward(input.clone()).reshape([3 * d_output]);
    assert_eq!(moves(&linear, run), [2, 2], "weight and bias");
    let case = layer("strided conv2d");
    let (weight, bias) = (plain(case.shape.matrix(), 1), plain([16], 2));
    let config = burn::nn::conv::Conv2dConfig::new([32, 16], [3, 3]);
    let conv = PatchedConv2d::from_weights(Weight::Dense(weight), Some(bias), &config, flex());
    let mut conv = conv.expect("the shapes agree");
    add_readers(&mut conv);
    let input: Tensor<4> = tensor([1, 32, 3, 3], 3, &ndarray(), DType::F32);
    let run = || conv.forward(input.clone()).reshape([16]);
    assert_eq!(moves(&conv, run), [2, 2], "weight and bias");
}

fn add_readers(layer: &mut impl PatchedLayer) {
    for reader in READERS {
        let patch = kind(reader).patch(&layer.layer_shape(), DType::F32);
        layer.add_patch(reader, patch, 0.3).expect("it fits");
    }
}
