//! Every kind over a weight that cannot be decoded: what needs its shape alone is mounted and computes as over the true
//! values, what needs these is refused at mount.

use std::sync::Arc;

use burn::{
    nn::conv::Conv1dConfig,
    tensor::{DType, Tensor},
};
use overglaze_core::{
    BaseWeights, Error, LayerLoader, LoaderConfig, Mounting, Placement, fingerprint::fingerprint,
    merge, mount, mounted, swap, unmount,
};
use overglaze_patches::{BaseAccess, BaseLayer, LayerShape, Patch};
use overglaze_stream::MemorySource;

use super::kinds::{KINDS, kind};
use crate::{
    closed_format::{TAG, closed},
    numbers::{assert_close, flex, largest, lora, message, plain, wave},
    toy::{Toy, patch_set, piece},
};

const SHAPE: [usize; 2] = [32, 64];
const PATHS: [&str; 2] = ["l.0", "l.1"];
const STRENGTH: f32 = 0.7;

fn source() -> MemorySource {
    let mut source = MemorySource::new("closed.safetensors");
    for (index, path) in PATHS.into_iter().enumerate() {
        let weight: Vec<f32> = wave(&SHAPE, 10 * index).iter().collect();
        let bias = wave(&SHAPE[..1], 10 * index + 1).as_bytes().to_vec();
        let tensors = [
            ("weight", TAG, SHAPE.to_vec(), closed(&weight)),
            ("bias", "F32", vec![SHAPE[0]], bias.into()),
        ];
        for (name, tag, shape, bytes) in tensors {
            let inserted = source.insert(format!("{path}.{name}"), tag, shape, bytes);
            inserted.expect("the bytes are of that shape");
        }
    }
    source
}

/// In place, and under a budget of one layer.
fn models() -> [(Toy, BaseWeights); 2] {
    let budget = 4 * (SHAPE[0] * SHAPE[1] + SHAPE[0]) as u64;
    let streamed = LoaderConfig {
        lookahead: 0,
        poison_released: true,
        ..LoaderConfig::streamed(flex(), budget)
    };
    [LoaderConfig::resident(flex()), streamed].map(|config| {
        let loaded = Toy::load(Arc::new(source()), &PATHS, config);
        loaded.expect("every layer fits the budget")
    })
}

fn input() -> Tensor<2> {
    plain([5, SHAPE[1]], 3)
}

fn shape() -> LayerShape {
    LayerShape::linear(SHAPE[0], SHAPE[1])
}

/// The output of layer `index` with `patch` laid over `rows` of a weight of which the layer is a part, by the true values.
fn expected(index: usize, patch: Option<(&dyn Patch, [usize; 2])>) -> Tensor<2> {
    let (mut weight, mut bias) = (plain(SHAPE, 10 * index), plain([SHAPE[0]], 10 * index + 1));
    if let Some((patch, [first, num_rows])) = patch {
        // A replacement is not scaled, and reads the bias, which anybody can.
        let at_strength = patch.at_strength(STRENGTH);
        let (patch, scale) = match &at_strength {
            Some(patch) => (&**patch, 1.0),
            None => (patch, STRENGTH),
        };
        let whole = LayerShape::linear(num_rows, SHAPE[1]);
        let base = BaseLayer {
            bias: Some(&bias),
            ..BaseLayer::of_shape(&whole)
        };
        let rows = first..first + SHAPE[0];
        let weight_delta = patch.delta_weight(&base).expect("it shows its shape");
        let bias_delta = patch.delta_bias(&base).expect("it shows its shape");
        if let Some(delta) = weight_delta {
            weight = weight + delta.slice_dim(0, rows.clone()).mul_scalar(scale);
        }
        if let Some(delta) = bias_delta {
            bias = bias + delta.slice_dim(0, rows).mul_scalar(scale);
        }
    }
    input().matmul(weight.transpose()) + bias.unsqueeze()
}

/// Sums of 64 products and of a rank of at most 64, in f32 and in another order.
fn check(case: &str, found: &Tensor<2>, expected: &Tensor<2>) {
    let tolerance = 128.0 * f32::EPSILON * largest(expected).max(1.0);
    assert_close(case, found, expected, tolerance);
}

/// Everything a failed mount must leave alone.
fn state(toy: &Toy) -> (Vec<u32>, String, Vec<String>) {
    let base = fingerprint(toy, &mut |_| ()).expect("every layer can be read");
    let names = mounted(toy).into_iter().map(|adapter| adapter.name);
    (toy.output_bits(&input()), base.to_hex(), names.collect())
}

#[test]
fn a_bare_layer_multiplies_without_values() {
    for (toy, _) in models() {
        for (index, layer) in toy.layers.iter().enumerate() {
            check("bare", &layer.forward(input()), &expected(index, None));
            let many = plain([130, SHAPE[1]], 4);
            let rows = layer.forward(many.clone()).slice_dim(0, 7..8);
            let alone = layer.forward(many.slice_dim(0, 7..8));
            check("of many rows", &rows, &alone);
        }
    }
}

#[test]
fn kinds_that_need_the_shape_alone_compute_as_over_the_true_values() {
    let mut names = Vec::new();
    for (mut toy, base) in models() {
        let before = state(&toy);
        for kind in KINDS.iter().filter(|kind| (kind.fits)(&shape())) {
            let patch = kind.patch(&shape(), DType::F32);
            if patch.base_access() == BaseAccess::Weight {
                continue;
            }
            let set = patch_set(vec![(PATHS[1], Arc::clone(&patch))]);
            mount(&mut toy, "set", &set, STRENGTH).expect("it reads nothing");
            let rows = [0, SHAPE[0]];
            let patched = toy.layers[1].forward(input());
            check(kind.name, &patched, &expected(1, Some((&*patch, rows))));
            let other = toy.layers[0].forward(input());
            check(kind.name, &other, &expected(0, None));
            unmount(&mut toy, "set").expect("it is mounted");
            names.push(kind.name);
        }
        assert_eq!(state(&toy), before);
        assert_eq!(base.traffic.num_decodes(), 0);
    }
    for name in [
        "lora",
        "loha, narrow",
        "loha, wide",
        "lokr, factors",
        "full",
        "row ranges, ranks and a gap",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
}

#[test]
fn rows_of_a_fused_patch_are_laid_over_each_layer() {
    let num_rows = 2 * SHAPE[0];
    let fused = LayerShape::linear(num_rows, SHAPE[1]);
    for name in ["lora", "loha, narrow", "lokr, factors"] {
        for (toy, _) in models() {
            let halves = [0, SHAPE[0]].map(|first| first..first + SHAPE[0]);
            let pieces = PATHS.into_iter().zip(halves);
            let pieces = pieces.map(|(path, rows)| piece(path, 0..SHAPE[0], rows));
            let mut toy = toy.with_alias("fused", pieces.collect());
            let patch = kind(name).patch(&fused, DType::F32);
            let set = patch_set(vec![("fused", Arc::clone(&patch))]);
            mount(&mut toy, "set", &set, STRENGTH).expect("it reads nothing");
            for (index, layer) in toy.layers.iter().enumerate() {
                let rows = [index * SHAPE[0], num_rows];
                let expected = expected(index, Some((&*patch, rows)));
                check(name, &layer.forward(input()), &expected);
            }
        }
    }
}

#[test]
fn kinds_that_need_the_values_are_refused_by_name() {
    let mut names = Vec::new();
    for (mut toy, _) in models() {
        mount(
            &mut toy,
            "lora",
            &patch_set(vec![(PATHS[0], lora(SHAPE, 4, 20))]),
            STRENGTH,
        )
        .expect("it reads nothing");
        let before = state(&toy);
        for kind in KINDS.iter().filter(|kind| (kind.fits)(&shape())) {
            let patch = kind.patch(&shape(), DType::F32);
            if patch.base_access() == BaseAccess::Shape {
                continue;
            }
            let name = patch.kind().to_owned();
            let set = patch_set(vec![(PATHS[1], patch)]);
            let why = format!(
                "adapter `set` does not fit this model: none of its 1 keys could be applied; the first: `{}`: a {name} \
                 patch needs the values of the base weight, but only its shape can be read; mount it on a checkpoint \
                 whose weight can be decoded",
                PATHS[1]
            );
            assert_eq!(message(mount(&mut toy, "set", &set, STRENGTH)), why);
            // The one that was to leave stays.
            let swapped = swap(&mut toy, &["lora"], &[("set", &set, STRENGTH)]);
            assert_eq!(message(swapped), why);
            assert_eq!(state(&toy), before, "{}", kind.name);
            names.push(name);
        }
    }
    for name in ["dora", "ia3", "set-parameter"] {
        assert!(
            names.iter().any(|found| found.contains(name)),
            "{name}: {names:?}"
        );
    }
}

#[test]
fn nothing_is_merged_into_such_a_weight() {
    let [(mut toy, base), _] = models();
    let set = patch_set(vec![(PATHS[1], lora(SHAPE, 4, 20))]);
    let before = state(&toy);
    let refused = merge(&mut toy, &[("set", &set, STRENGTH)]);
    assert!(matches!(&refused, Err(Error::MergeHidden { layer }) if layer == PATHS[1]));
    assert_eq!(state(&toy), before);
    let automatic = Mounting::new("set", &set, STRENGTH).with_placement(Placement::Automatic);
    swap(&mut toy, &[], &[automatic]).expect("it becomes a sidecar");
    assert!(mounted(&toy)[0].direct_layers.is_empty());
    let patch = lora(SHAPE, 4, 20);
    let patched = toy.layers[1].forward(input());
    check(
        "automatic",
        &patched,
        &expected(1, Some((&*patch, [0, SHAPE[0]]))),
    );
    assert_eq!(base.traffic.written_bytes(), 0);
}

#[test]
fn layers_that_compute_with_values_are_not_built_over_it() {
    let mut source = source();
    let scale = closed(&[1.0; 8]);
    let inserted = source.insert("norm.weight", TAG, [8], scale);
    inserted.expect("the bytes are of that shape");
    let mut loader = LayerLoader::new(Arc::new(source), LoaderConfig::resident(flex()));
    let refused = |tensor: &str| {
        format!(
            "the tensor `{tensor}` is packed as closed, which cannot be decoded, only multiplied with; it can be the \
             weight of a linear layer in host memory, and nothing else"
        )
    };
    let conv = Conv1dConfig::new(SHAPE[1], SHAPE[0], 1);
    assert_eq!(message(loader.conv1d("l.0", &conv)), refused("l.0.weight"));
    assert_eq!(message(loader.embedding("l.0")), refused("l.0.weight"));
    let parameter = loader.parameter::<2>("l.0.weight");
    assert_eq!(message(parameter), refused("l.0.weight"));
    assert_eq!(
        message(loader.layer_norm("norm", 1e-5)),
        refused("norm.weight")
    );
    assert!(loader.linear("l.0").is_ok());
}
