//! What is wrong with a source is said when the layers are built, by tensor and file.

use std::sync::Arc;

use bytes::Bytes;
use overglaze_core::{Error, LayerLoader, LoaderConfig, PatchedLayer};
use overglaze_stream::MemorySource;

use crate::{
    numbers::{assert_close, flex, message, plain, values, wave},
    toy::source,
};

fn loader(source: MemorySource) -> LayerLoader {
    LayerLoader::new(Arc::new(source), LoaderConfig::resident(flex()))
}

/// A source with a good layer `fc` and the tensors given.
fn with(tensors: Vec<(&str, &str, Vec<usize>, usize)>) -> MemorySource {
    let mut source = source(&[("fc", "F32", [6, 8])]);
    for (name, tag, shape, num_bytes) in tensors {
        let inserted = source.insert(name, tag, shape, Bytes::from(vec![0; num_bytes]));
        inserted.expect("the size is right");
    }
    source
}

/// The message and its cause's.
fn chain<T>(result: Result<T, Error>) -> String {
    let Err(error) = result else {
        panic!("it succeeded");
    };
    let cause = std::error::Error::source(&error);
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    format!("{error}{cause}")
}

#[test]
fn errors_name_file_and_tensor() {
    let cases: [(MemorySource, &str, &str); 7] = [
        (
            with(vec![]),
            "fd",
            "toy.safetensors: tensor `fd.weight` is missing; the nearest name in it is `fc.weight`",
        ),
        (
            MemorySource::new("empty"),
            "fc",
            "empty: tensor `fc.weight` is missing",
        ),
        (
            with(vec![("conv.weight", "F32", vec![2, 2, 1], 16)]),
            "conv",
            "toy.safetensors: tensor `conv.weight` has shape [2, 2, 1], expected a matrix [d_output, d_input]",
        ),
        (
            with(vec![
                ("a.weight", "F32", vec![2, 2], 16),
                ("a.bias", "F32", vec![3], 12),
            ]),
            "a",
            "toy.safetensors: tensor `a.bias` has shape [3], expected [2]",
        ),
        (
            with(vec![
                ("a.weight", "F32", vec![2, 2], 16),
                ("a.bias", "F32", vec![1, 2], 8),
            ]),
            "a",
            "toy.safetensors: tensor `a.bias` has shape [1, 2], expected a vector",
        ),
        (
            with(vec![("a.weight", "C64", vec![2, 2], 32)]),
            "a",
            "tensor `a.weight` cannot be read: no weight format is called `C64`",
        ),
        (
            with(vec![("a.weight", "Q8_0", vec![2, 24], 34)]),
            "a",
            "tensor `a.weight` cannot be read: ",
        ),
    ];
    for (source, path, expected) in cases {
        let streamed = LoaderConfig::streamed(flex(), 1 << 20);
        let mut streamed = LayerLoader::new(Arc::new(source.clone()), streamed);
        for found in [
            chain(streamed.linear(path)),
            chain(loader(source).linear(path)),
        ] {
            assert!(found.starts_with(expected), "{found}");
        }
    }
}

#[test]
fn errors_of_vectors() {
    let cases = [
        (
            "nrom.scale",
            "toy.safetensors: tensor `nrom.scale` is missing; the nearest name in it is `norm.scale`",
        ),
        (
            "fc.weight",
            "toy.safetensors: tensor `fc.weight` has shape [6, 8], expected a vector",
        ),
    ];
    for (name, expected) in cases {
        let source = || with(vec![("norm.scale", "F32", vec![4], 16)]);
        assert_eq!(message(loader(source()).vector(name)), expected);
        assert_eq!(message(loader(source()).rms_norm(name, 1e-6)), expected);
    }
    let missing = loader(with(vec![])).vector("x");
    assert!(matches!(missing, Err(Error::MissingTensor { .. })));
}

#[test]
fn a_loader_builds_what_the_source_has() {
    let mut source = with(vec![("bare.weight", "F32", vec![2, 3], 24)]);
    let scale: Vec<u8> = wave(&[8], 5).as_bytes().to_vec();
    source
        .insert("norm.scale", "F32", vec![8], scale.into())
        .expect("it is new");
    let mut loader = loader(source);
    let layer = loader.linear("fc").expect("it is there");
    assert_eq!(
        (layer.d_output(), layer.d_input(), layer.has_bias()),
        (6, 8, true)
    );
    assert!(layer.is_resident());
    let bare = loader.linear("bare").expect("it is there");
    assert_eq!((bare.weight_shape(), bare.has_bias()), ([2, 3], false));
    let norm = loader.rms_norm("norm.scale", 1e-6).expect("it is there");
    assert_eq!(values(&norm.gamma.val()), values(&plain([8], 5)));
    assert!(Arc::ptr_eq(layer.traffic(), loader.traffic()));
    assert_eq!(loader.device(), &flex());
    assert_eq!(loader.source().label(), "toy.safetensors");
    let base = loader.finish().expect("nothing is streamed");
    assert_eq!(base.num_bytes, 4 * (48 + 6 + 6 + 8));
    assert!(base.streamer.is_none());
    let input = plain([3, 8], 3);
    let expected = input.clone().matmul(plain([6, 8], 0).transpose()) + plain([6], 1).unsqueeze();
    assert_close("fc", &layer.forward(input), &expected, 1e-5);
}

#[test]
fn a_layer_on_ndarray_reads_the_same_bytes() {
    let nd = crate::numbers::ndarray();
    let config = LoaderConfig::resident(nd.clone());
    let mut loader = LayerLoader::new(Arc::new(source(&[("fc", "BF16", [6, 8])])), config);
    let layer = loader.linear("fc").expect("it is there");
    let input = crate::numbers::tensor([3, 8], 3, &nd, burn::tensor::DType::F32);
    let output = layer.forward(input);
    let weight = crate::numbers::rounded([6, 8], 0, burn::tensor::DType::BF16);
    let expected = plain([3, 8], 3).matmul(weight.transpose()) + plain([6], 1).unsqueeze();
    assert_close("ndarray", &output, &expected, 1e-5);
    assert_eq!((output.device(), layer.traffic().num_moves()), (nd, 0));
}

#[test]
fn a_layer_used_before_its_streamer_runs_is_an_error() {
    let streamed = LoaderConfig::streamed(flex(), 1 << 20);
    let source = Arc::new(source(&[("fc", "F32", [6, 8])]));
    let mut loader = LayerLoader::new(source, streamed);
    let layer = loader.linear("fc").expect("it is there");
    let (input, early) = (
        plain([3, 8], 3),
        "the weights are not being streamed yet; call `LayerLoader::finish` before a forward pass",
    );
    assert_eq!(message(layer.try_forward(input.clone())), early);
    assert_eq!(message(layer.base_values(&flex())), early);
    assert_eq!(message(layer.visit_base_bytes(&mut |_| ())), early);
    let base = loader.finish().expect("it fits the budget");
    assert!(layer.try_forward(input).is_ok());
    assert!(base.streamer.is_some());
}
