//! Baking patch sets into a file: every tensor against its definition, and what is refused.

use std::{collections::BTreeMap, sync::Arc};

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use bytes::Bytes;
use overglaze_core::{Error, FileLayer, FileLayers, FileMerge, NameTable};
use overglaze_patches::{
    BaseLayer, LayerShape, Patch, PatchError, PatchSet, at_strength, tensor_bytes,
};
use overglaze_stream::{MemorySource, WeightSource};

use crate::{
    numbers::{flex, lora, message, ndarray, plain, stored, values, wave},
    test_patch::TestPatch,
    toy::{lora_adapter, patch_set, piece, source},
};

const SHAPE: [usize; 2] = [6, 32];
const TAGS: [(&str, DType); 3] = [
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
];

/// Every `<path>.weight` of `source` as a linear layer, under its path and the aliases given.
pub(crate) struct Known {
    pub(crate) names: NameTable,
    pub(crate) layers: BTreeMap<String, FileLayer>,
}

impl Known {
    pub(crate) fn of(source: &dyn WeightSource) -> Self {
        let (mut names, mut layers) = (NameTable::default(), BTreeMap::new());
        for (weight, entry) in source.entries() {
            let Some(path) = weight.strip_suffix(".weight") else {
                continue;
            };
            let bias = format!("{path}.bias");
            let shape = match entry.shape.as_slice() {
                [rows, columns] => LayerShape::linear(*rows, *columns).with_open_input(),
                [width] => LayerShape::norm(*width),
                dims => LayerShape::conv(dims, 1),
            };
            names
                .add_layer(path, shape.d_output())
                .expect("paths are distinct");
            let layer = FileLayer {
                shape,
                weight: weight.clone(),
                bias: source.entries().contains_key(&bias).then_some(bias),
            };
            layers.insert(path.into(), layer);
        }
        Self { names, layers }
    }
}

type Set<'a> = (&'a str, &'a PatchSet, f32);

fn merged_on(
    device: &Device,
    source: &MemorySource,
    known: &Known,
    sets: &[Set<'_>],
) -> Result<MemorySource, Error> {
    let layer = |path: &str| known.layers.get(path).cloned();
    let layers = FileLayers {
        names: &known.names,
        layer: &layer,
    };
    let merge = FileMerge::plan(source, layers, sets, device)?;
    let layout = merge.layout("out", BTreeMap::new())?;
    let (total, mut last) = (layout.data_bytes(), 0);
    let file = merge.write(layout, Vec::new(), &mut |written| {
        assert!(written > last, "it goes on");
        last = written;
    })?;
    assert_eq!(last, total);
    Ok(MemorySource::from_safetensors("out", Bytes::from(file))?)
}

fn merged(source: &MemorySource, sets: &[Set<'_>]) -> Result<MemorySource, Error> {
    merged_on(&flex(), source, &Known::of(source), sets)
}

fn read(source: &MemorySource, name: &str) -> Vec<f32> {
    let dtype = TAGS
        .iter()
        .find(|(tag, _)| source.entries()[name].tag == *tag);
    let bytes = source.read(name).expect("the tensor is there");
    let shape = source.entries()[name].shape.clone();
    let bytes = burn::tensor::Bytes::from_bytes_vec(bytes.to_vec());
    let (_, dtype) = dtype.expect("it is of a float type");
    let data = TensorData::from_bytes(bytes, shape, *dtype);
    data.convert_dtype(DType::F32).iter().collect()
}

/// `base + Σ ΔW`, rounded once.
fn expected(base: &Tensor<2>, deltas: &[Tensor<2>], dtype: DType) -> Vec<f32> {
    let mut sum = deltas[0].clone();
    for delta in &deltas[1..] {
        sum = sum + delta.clone();
    }
    let data = (base.clone() + sum).into_data();
    data.convert_dtype(dtype)
        .convert_dtype(DType::F32)
        .iter()
        .collect()
}

fn delta(patch: &Arc<dyn Patch>, strength: f32, base: &Tensor<2>) -> Tensor<2> {
    let shape = LayerShape::linear(base.dims()[0], base.dims()[1]);
    let layer = BaseLayer {
        weight: Some(base),
        ..BaseLayer::of_shape(&shape)
    };
    let delta = at_strength(patch, strength).delta_weight(&layer);
    delta.expect("it is computed").expect("there is one")
}

#[test]
fn sums_against_the_base_are_rounded_once() {
    for (tag, dtype) in TAGS {
        let source = source(&[("fc", tag, SHAPE), ("other", tag, SHAPE)]);
        let patches: [Arc<dyn Patch>; 2] = [lora(SHAPE, 2, 20), TestPatch::gain(0.5).shared()];
        let [first, second] = patches.clone().map(|patch| patch_set(vec![("fc", patch)]));
        let found = merged(
            &source,
            &[("first", &first, 0.7), ("second", &second, -1.0)],
        );
        let found = found.expect("both fit");
        let base = Tensor::from_data(TensorData::new(read(&source, "fc.weight"), SHAPE), &flex());
        let deltas = [
            delta(&patches[0], 0.7, &base),
            delta(&patches[1], -1.0, &base),
        ];
        let weight = read(&found, "fc.weight");
        assert_eq!(weight, expected(&base, &deltas, dtype), "{tag}");
        assert_ne!(weight, values(&base), "{tag}: it changes");
        let bias = plain([6], 1) + plain([6], 22).mul_scalar(0.7).mul_scalar(0.5);
        for (found, expected) in read(&found, "fc.bias").iter().zip(values(&bias)) {
            assert!((found - expected).abs() < 1e-6, "{tag}: {found} {expected}");
        }
        for name in ["other.weight", "other.bias"] {
            assert_eq!(
                found.read(name).ok(),
                source.read(name).ok(),
                "{tag} {name}"
            );
        }
    }
}

#[test]
fn the_order_of_the_sets_does_not_matter() {
    let source = source(&[("fc", "F32", SHAPE)]);
    let ones = TestPatch::new(
        Some(Tensor::ones(SHAPE, &flex())),
        Some(Tensor::ones([6], &flex())),
    );
    for patch in [ones.shared(), lora(SHAPE, 2, 20)] {
        let set = patch_set(vec![("fc", patch)]);
        // Whatever is added before the two large ones is lost to rounding.
        let sets = [("a", &set, 1e8), ("b", &set, -1e8), ("c", &set, 1.0)];
        let expected = merged(&source, &sets).expect("it fits");
        for order in [[0, 2, 1], [1, 0, 2], [2, 0, 1], [2, 1, 0]] {
            let found = merged(&source, &order.map(|index: usize| sets[index])).expect("it fits");
            for name in ["fc.weight", "fc.bias"] {
                assert_eq!(
                    found.read(name).ok(),
                    expected.read(name).ok(),
                    "{name} {order:?}"
                );
            }
        }
    }
}

#[test]
fn a_device_without_the_stored_type_rounds_the_same() {
    let source = source(&[("fc", "BF16", SHAPE)]);
    let set = patch_set(vec![("fc", TestPatch::gain(0.3).shared())]);
    let known = Known::of(&source);
    let [a, b] = [flex(), ndarray()]
        .map(|device| merged_on(&device, &source, &known, &[("set", &set, 1.0)]).expect("it fits"));
    assert_eq!(a.read("fc.weight").ok(), b.read("fc.weight").ok());
}

#[test]
fn a_bias_that_the_base_lacks_becomes_a_tensor_in_the_weights_type() {
    let mut source = MemorySource::new("toy");
    let weight = stored(&wave(&SHAPE, 0), "BF16");
    source
        .insert("fc.weight", "BF16", SHAPE, weight)
        .expect("it fits");
    let patch = TestPatch::new(None, Some(plain([6], 3))).shared();
    let set = patch_set(vec![("fc", patch)]);
    let found = merged(&source, &[("set", &set, 2.0)]).expect("it fits");
    assert_eq!(found.entries()["fc.bias"].tag, "BF16");
    let doubled = plain([6], 3).mul_scalar(2.0).into_data();
    let expected: Vec<f32> = doubled
        .convert_dtype(DType::BF16)
        .convert_dtype(DType::F32)
        .iter()
        .collect();
    assert_eq!(read(&found, "fc.bias"), expected);
    assert_eq!(found.read("fc.weight").ok(), source.read("fc.weight").ok());
}

#[test]
fn rows_of_a_fused_layer_and_a_whole_over_split_layers_are_merged() {
    let source = source(&[
        ("qkv", "F32", SHAPE),
        ("a", "F32", [2, 32]),
        ("b", "F32", [4, 32]),
    ]);
    let mut known = Known::of(&source);
    let aliases = [
        ("to_k", vec![piece("qkv", 2..4, 0..2)]),
        ("ab", vec![piece("a", 0..2, 0..2), piece("b", 0..4, 2..6)]),
    ];
    for (alias, pieces) in aliases {
        known
            .names
            .add_alias(alias, pieces)
            .expect("aliases are distinct");
    }
    let set = lora_adapter(&[("to_k", [2, 32], 40), ("ab", SHAPE, 50)]);
    let found = merged_on(&flex(), &source, &known, &[("set", &set, 1.0)]).expect("it fits");
    let change = |name: &str| -> Vec<f32> {
        let pairs = read(&found, name).into_iter().zip(read(&source, name));
        pairs.map(|(after, before)| after - before).collect()
    };
    let (rows, whole) = (
        plain([2, 2], 40).matmul(plain([2, 32], 41)),
        plain([6, 2], 50).matmul(plain([2, 32], 51)),
    );
    let zeros = vec![0.0; 64];
    let expected = [
        ("qkv.weight", [zeros.clone(), values(&rows), zeros].concat()),
        ("a.weight", values(&whole)[..64].to_vec()),
        ("b.weight", values(&whole)[64..].to_vec()),
    ];
    for (name, expected) in expected {
        let off = change(name)
            .iter()
            .zip(&expected)
            .fold(0.0_f32, |off, (a, b)| off.max((a - b).abs()));
        assert!(
            off < 1e-6 && expected.iter().any(|value| *value != 0.0),
            "{name}: {off}"
        );
    }
}

/// A patch that reads two more columns than the base has.
#[derive(Debug)]
struct Wider(Tensor<2>);

impl Patch for Wider {
    fn kind(&self) -> &str {
        "wider"
    }

    fn check(&self, _: &LayerShape) -> Result<(), PatchError> {
        Ok(())
    }

    fn d_input(&self, _: &LayerShape) -> usize {
        self.0.dims()[1]
    }

    fn delta_weight(&self, _: &BaseLayer<'_>) -> Result<Option<Tensor<2>>, PatchError> {
        Ok(Some(self.0.clone()))
    }

    fn to_device(&self, device: &Device, _: FloatDType) -> Arc<dyn Patch> {
        Arc::new(Self(self.0.clone().to_device(device)))
    }

    fn num_bytes(&self) -> usize {
        tensor_bytes(&self.0)
    }
}

#[test]
fn a_control_patch_widens_the_weight() {
    let source = source(&[("fc", "F32", [2, 3])]);
    let wide = Tensor::from_data(
        [[1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]],
        &flex(),
    );
    let narrow = plain([2, 3], 30);
    let sets = [
        patch_set(vec![(
            "fc",
            Arc::new(Wider(wide.clone())) as Arc<dyn Patch>,
        )]),
        patch_set(vec![(
            "fc",
            TestPatch::new(Some(narrow.clone()), None).shared(),
        )]),
    ];
    let found = merged(
        &source,
        &[("wide", &sets[0], 1.0), ("narrow", &sets[1], 1.0)],
    )
    .expect("they fit");
    assert_eq!(found.entries()["fc.weight"].shape, [2, 5]);
    let zeros = || Tensor::<2>::zeros([2, 2], &flex());
    let base = Tensor::cat(vec![plain([2, 3], 0), zeros()], 1);
    let narrow = Tensor::cat(vec![narrow, zeros()], 1);
    assert_eq!(
        read(&found, "fc.weight"),
        expected(&base, &[wide, narrow], DType::F32)
    );
}

#[test]
fn what_cannot_be_merged_is_said() {
    let mut source = source(&[("fc", "F16", SHAPE)]);
    let mut insert = |name: &str, tag: &str, shape: &[usize], num_bytes: usize| {
        let inserted = source.insert(name, tag, shape, Bytes::from(vec![0; num_bytes]));
        inserted.expect("the bytes are of that shape");
    };
    insert("wide.weight", "F64", &SHAPE, 8 * 192);
    insert("norm.weight", "F32", &[6], 24);
    insert("longer.weight", "F32", &SHAPE, 4 * 192);
    insert("longer.bias", "F32", &[7], 28);
    let check = |set: &PatchSet, expected: &str| {
        let found = message(merged(&source, &[("set", set, 1.0)]));
        assert!(found.contains(expected), "{found}");
    };
    check(
        &lora_adapter(&[("wide", SHAPE, 20)]),
        "tensor `wide.weight` has dtype F64, and patches are merged into F32, F16 and BF16 only; convert the \
         checkpoint first",
    );
    check(
        &patch_set(vec![(
            "norm",
            TestPatch::new(None, Some(plain([6], 3))).shared(),
        )]),
        "the norm has no `norm.bias`, and a model that has none would not read one",
    );
    check(
        &patch_set(vec![("longer", lora(SHAPE, 2, 20))]),
        "toy.safetensors: tensor `longer.bias` has shape [7], expected [6], a value for each output",
    );
    check(
        &patch_set(vec![(
            "fc",
            TestPatch::new(Some(plain(SHAPE, 3).mul_scalar(1e6)), None).shared(),
        )]),
        "tensor `fc.weight`: a merged value does not fit F16; lower the strengths, or merge into a checkpoint of a \
         wider type",
    );
    let both = lora_adapter(&[("fc", SHAPE, 20), ("wide", SHAPE, 20)]);
    let found = merged(&source, &[("set", &both, 1.0)]).expect("a part fits");
    assert_eq!(
        found.read("wide.weight").ok(),
        source.read("wide.weight").ok()
    );
    let infinite = message(merged(&source, &[("set", &both, f32::INFINITY)]));
    assert_eq!(
        infinite,
        "the strength of adapter `set` is inf, expected a finite number"
    );
}
