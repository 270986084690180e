//! The other wrappers in the places of Burn's layers: same names, same parameters, records both ways.

use burn::{
    module::Module,
    nn::{
        Embedding, EmbeddingConfig, GroupNorm, GroupNormConfig,
        conv::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig},
    },
};
use overglaze_core::{
    PatchedConv1d, PatchedConv2d, PatchedConv3d, PatchedEmbedding, PatchedGroupNorm, PatchedLayer,
};

use crate::{
    drop_in::census,
    numbers::{bits, flex, plain},
};

#[derive(Module, Debug)]
struct Plain {
    line: Conv1d,
    plane: Conv2d,
    volume: Conv3d,
    tokens: Embedding,
    norm: GroupNorm,
    bare: GroupNorm,
}

#[derive(Module, Debug)]
struct Patched {
    line: PatchedConv1d,
    plane: PatchedConv2d,
    volume: PatchedConv3d,
    tokens: PatchedEmbedding,
    norm: PatchedGroupNorm,
    bare: PatchedGroupNorm,
}

/// A model with random weights.
fn plain_model() -> Plain {
    let device = flex();
    Plain {
        line: Conv1dConfig::new(4, 6, 3).init(&device),
        plane: Conv2dConfig::new([4, 6], [3, 2])
            .with_bias(false)
            .init(&device),
        volume: Conv3dConfig::new([4, 6], [1, 2, 3]).init(&device),
        tokens: EmbeddingConfig::new(5, 4).init(&device),
        norm: GroupNormConfig::new(2, 4).init(&device),
        bare: GroupNormConfig::new(2, 4).with_affine(false).init(&device),
    }
}

fn patched(model: Plain) -> Patched {
    Patched {
        line: model.line.into(),
        plane: model.plane.into(),
        volume: model.volume.into(),
        tokens: model.tokens.into(),
        norm: model.norm.into(),
        bare: model.bare.into(),
    }
}

fn outputs(model: &Patched) -> [Vec<u32>; 3] {
    [
        bits(&model.line.forward(plain([1, 4, 5], 1))),
        bits(&model.plane.forward(plain([1, 4, 5, 5], 1))),
        bits(&model.volume.forward(plain([1, 4, 3, 3, 3], 1))),
    ]
}

#[test]
fn a_visitor_sees_what_burns_layers_have() {
    let model = plain_model();
    let expected = census(&model);
    let names: Vec<_> = expected.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "line.weight",
            "line.bias",
            "plane.weight",
            "volume.weight",
            "volume.bias",
            "tokens.weight",
            "norm.gamma",
            "norm.beta"
        ]
    );
    let is_lazy = |model: &Plain| !model.plane.weight.is_initialized();
    assert!(is_lazy(&model));
    let num_params = model.num_params();
    let patched = patched(model);
    assert_eq!(census(&patched), expected);
    assert_eq!(patched.num_params(), num_params);
    // Nothing has been asked for a value yet.
    assert_eq!(patched.plane.layer_shape().dims(), [6, 4, 3, 2]);
    assert_eq!(patched.tokens.layer_shape().dims(), [5, 4]);
    let inner = Plain {
        line: patched.line.into_inner().expect("nothing is mounted"),
        plane: patched.plane.into_inner().expect("nothing is mounted"),
        volume: patched.volume.into_inner().expect("nothing is mounted"),
        tokens: patched.tokens.into_inner().expect("nothing is mounted"),
        norm: patched.norm.into_inner().expect("nothing is mounted"),
        bare: patched.bare.into_inner().expect("nothing is mounted"),
    };
    assert_eq!(census(&inner), expected);
    assert!(is_lazy(&inner));
}

#[test]
fn records_go_both_ways() {
    let (source, other) = (plain_model(), plain_model());
    let expected = outputs(&patched(source.clone()));
    let into = patched(other);
    assert_ne!(outputs(&into), expected);
    let loaded = into.load_record(source.into_record());
    assert_eq!(outputs(&loaded), expected, "Burn's record");
    let back = plain_model().load_record(loaded.into_record());
    assert_eq!(outputs(&patched(back)), expected, "ours");
}
