//! A user's own Burn module, its parameters assigned from a file.

use burn::{
    module::{Module, Param},
    nn::{
        Embedding, EmbeddingConfig, GroupNorm, GroupNormConfig, LayerNorm, LayerNormConfig, Linear,
        LinearConfig,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::{DType, Tensor},
};
use bytes::Bytes;
use overglaze_core::{
    PatchedConv2d, PatchedEmbedding, PatchedGroupNorm, PatchedLinear, load_module,
};
use overglaze_stream::MemorySource;

use crate::numbers::{assert_close, flex, message, ndarray, plain, rounded, stored, values, wave};

#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "a test of two of them")]
enum Head {
    Narrow(Linear),
    Wrapped(PatchedLinear),
}

#[derive(Module, Debug)]
struct Net {
    stem: Linear,
    norm: LayerNorm,
    heads: Vec<Head>,
    scale: f64,
}

fn linear(d_input: usize, d_output: usize) -> Linear {
    LinearConfig::new(d_input, d_output).init(&flex())
}

fn net() -> Net {
    let unbiased = LinearConfig::new(4, 4).with_bias(false).init(&flex());
    Net {
        stem: linear(3, 4),
        norm: LayerNormConfig::new(4).init(&flex()),
        heads: vec![Head::Narrow(linear(4, 2)), Head::Wrapped(unbiased.into())],
        scale: 2.0,
    }
}

/// Name, tag, shape and wave of every tensor the module has.
const TENSORS: [(&str, &str, &[usize], usize); 7] = [
    ("stem.weight", "F32", &[4, 3], 1),
    ("stem.bias", "F32", &[4], 2),
    ("norm.weight", "F32", &[4], 3),
    ("norm.beta", "F32", &[4], 4),
    ("heads.0.weight", "BF16", &[2, 4], 5),
    ("heads.0.bias", "F16", &[2], 6),
    ("heads.1.weight", "F32", &[4, 4], 7),
];

fn insert(source: &mut MemorySource, (name, tag, shape, seed): (&str, &str, &[usize], usize)) {
    let bytes = stored(&wave(shape, seed), tag);
    source
        .insert(name, tag, shape, bytes)
        .expect("the size is right");
}

fn file(tensors: &[(&str, &str, &[usize], usize)]) -> MemorySource {
    let mut source = MemorySource::new("net.safetensors");
    for tensor in tensors {
        insert(&mut source, *tensor);
    }
    source
}

#[test]
fn parameters_are_assigned_by_path() {
    let mut source = file(&TENSORS);
    insert(&mut source, ("optimizer.step", "F32", &[1], 8));
    let (loaded, report) = load_module(net(), &source, &flex()).expect("it fits");
    let names: Vec<_> = TENSORS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(report.assigned, names);
    assert_eq!(report.unused, ["optimizer.step"]);
    // Burn's layout: [d_input, d_output].
    assert_eq!(
        values(&loaded.stem.weight.val()),
        values(&plain([4, 3], 1).transpose())
    );
    assert_eq!(values(&loaded.norm.gamma.val()), values(&plain([4], 3)));
    let beta = loaded.norm.beta.as_ref().expect("it has one");
    assert_eq!(values(&beta.val()), values(&plain([4], 4)));
    let [Head::Narrow(narrow), Head::Wrapped(wrapped)] = loaded.heads.as_slice() else {
        panic!("{:?}", loaded.heads);
    };
    assert_eq!(
        narrow.weight.val().dtype(),
        DType::BF16,
        "the file's dtype is kept"
    );
    let input: Tensor<2> = plain([3, 4], 9);
    let expected = input
        .clone()
        .matmul(rounded([2, 4], 5, DType::BF16).transpose());
    let weight = narrow.weight.val().cast(DType::F32);
    assert_close("narrow", &input.clone().matmul(weight), &expected, 1e-5);
    let expected = input.clone().matmul(plain([4, 4], 7).transpose());
    assert_close("wrapped", &wrapped.forward(input), &expected, 1e-5);
}

#[test]
fn a_device_without_the_dtype_gets_f32() {
    let (loaded, _) = load_module(net(), &file(&TENSORS), &ndarray()).expect("it fits");
    let Head::Narrow(narrow) = &loaded.heads[0] else {
        panic!("{:?}", loaded.heads);
    };
    let weight = narrow.weight.val();
    assert_eq!((weight.device(), weight.dtype()), (ndarray(), DType::F32));
    assert_eq!(
        values(&weight),
        values(&rounded([2, 4], 5, DType::BF16).transpose())
    );
}

#[test]
fn bytes_at_odd_addresses_are_copied() {
    let mut source = MemorySource::new("odd");
    let padded = [&[0], wave(&[2, 3], 1).as_bytes()].concat();
    let odd = Bytes::from(padded).slice(1..);
    source
        .insert("weight", "F32", vec![2, 3], odd)
        .expect("the size is right");
    let unbiased = LinearConfig::new(3, 2).with_bias(false).init(&flex());
    let (loaded, _) = load_module(unbiased, &source, &flex()).expect("it fits");
    let input: Tensor<2> = plain([1, 3], 2);
    let expected = input.clone().matmul(plain([2, 3], 1).transpose());
    assert_close("odd", &loaded.forward(input), &expected, 1e-6);
}

#[test]
fn what_does_not_fit_is_named() {
    let replaced = |index: usize, tensor| {
        let mut tensors = TENSORS;
        tensors[index] = tensor;
        file(&tensors)
    };
    let cases: [(MemorySource, &str); 5] = [
        (
            file(&TENSORS[1..]),
            "net.safetensors: tensor `stem.weight` is missing; the nearest name in it is `norm.weight`",
        ),
        (
            replaced(2, ("norm.scale", "F32", &[4], 1)),
            "net.safetensors: tensor `norm.gamma` is missing; the nearest name in it is `norm.beta`",
        ),
        (
            replaced(0, ("stem.weight", "F32", &[3, 4], 1)),
            "net.safetensors: tensor `stem.weight` has shape [3, 4], expected [4, 3]",
        ),
        (
            replaced(4, ("heads.0.weight", "F32", &[2, 4, 1], 1)),
            "net.safetensors: tensor `heads.0.weight` has shape [2, 4, 1], expected [2, 4]",
        ),
        (
            replaced(5, ("heads.0.bias", "I32", &[2], 1)),
            "net.safetensors: tensor `heads.0.bias` has dtype I32, expected F32, F16 or BF16; \
             convert the tensor",
        ),
    ];
    for (source, expected) in cases {
        let found = message(load_module(net(), &source, &flex()).map(drop));
        assert_eq!(found, expected);
    }
}

mod own {
    use super::*;

    /// Somebody's own layer that is called like Burn's.
    #[derive(Module, Debug)]
    pub(super) struct Linear {
        pub(super) codebook: Param<Tensor<2>>,
    }
}

#[test]
fn only_the_weight_of_a_linear_layer_is_transposed() {
    let layer = own::Linear {
        codebook: Param::from_tensor(Tensor::zeros([2, 3], &flex())),
    };
    let source = file(&[("codebook", "F32", &[2, 3], 1)]);
    let (loaded, _) = load_module(layer, &source, &flex()).expect("it fits");
    assert_eq!(values(&loaded.codebook.val()), values(&plain([2, 3], 1)));
}

/// Layers whose weights are no matrices, or matrices that are not transposed.
#[derive(Module, Debug)]
struct Stem {
    conv: Conv2d,
    wrapped: PatchedConv2d,
    tokens: Embedding,
    own_tokens: PatchedEmbedding,
    norm: GroupNorm,
    own_norm: PatchedGroupNorm,
}

#[test]
fn convolutions_embeddings_and_group_norms_are_stored_as_burn_has_them() {
    let conv = Conv2dConfig::new([3, 4], [2, 1]);
    let tokens = EmbeddingConfig::new(5, 3);
    let norm = GroupNormConfig::new(2, 4);
    let stem = Stem {
        conv: conv.init(&flex()),
        wrapped: conv.init(&flex()).into(),
        tokens: tokens.init(&flex()),
        own_tokens: tokens.init(&flex()).into(),
        norm: norm.init(&flex()),
        own_norm: norm.init(&flex()).into(),
    };
    let tensors: [(&str, &str, &[usize], usize); 10] = [
        ("conv.weight", "F32", &[4, 3, 2, 1], 1),
        ("conv.bias", "F32", &[4], 2),
        ("wrapped.weight", "BF16", &[4, 3, 2, 1], 3),
        ("wrapped.bias", "F32", &[4], 4),
        ("tokens.weight", "F32", &[5, 3], 5),
        ("own_tokens.weight", "F16", &[5, 3], 6),
        ("norm.weight", "F32", &[4], 7),
        ("norm.bias", "F32", &[4], 8),
        ("own_norm.weight", "F32", &[4], 9),
        ("own_norm.bias", "F32", &[4], 10),
    ];
    let (stem, report) = load_module(stem, &file(&tensors), &flex()).expect("it fits");
    assert_eq!(report.assigned, tensors.map(|(name, ..)| name));
    assert!(report.unused.is_empty());
    let weight = stem.wrapped.weight.as_ref().expect("it is Burn's").val();
    assert_eq!(weight.dtype(), DType::BF16);
    assert_eq!(
        values(&weight),
        values(&rounded([4, 3, 2, 1], 3, DType::BF16))
    );
    assert_eq!(
        values(&stem.conv.weight.val()),
        values(&plain([4, 3, 2, 1], 1))
    );
    assert_eq!(values(&stem.tokens.weight.val()), values(&plain([5, 3], 5)));
    let weight = stem.own_tokens.weight.as_ref().expect("it is Burn's").val();
    assert_eq!(values(&weight), values(&rounded([5, 3], 6, DType::F16)));
    let gamma =
        |gamma: &Option<Param<Tensor<1>>>| values(&gamma.as_ref().expect("it has one").val());
    assert_eq!(gamma(&stem.norm.gamma), values(&plain([4], 7)));
    assert_eq!(gamma(&stem.own_norm.gamma), values(&plain([4], 9)));
    assert_eq!(gamma(&stem.own_norm.beta), values(&plain([4], 10)));
}
