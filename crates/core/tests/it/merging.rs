//! Baking adapters into resident layers, and restoring the base bit for bit.

use burn::tensor::{DType, Tensor};
use overglaze_core::{
    LayerTree, LoaderConfig, PatchedLayer, PatchedLinear, Path, Weight, merge, mount, mounted,
    restore, swap,
};
use overglaze_patches::PatchSet;

use crate::{
    numbers::{
        assert_close, bits, flex, largest, lora, message, packed, plain, roundoff, tensor, values,
    },
    test_patch::TestPatch,
    toy::{Toy, lora_adapter, patch_set, resident, source},
};

const SHAPE: [usize; 2] = [6, 32];

/// Name, patches and strength.
type Set<'a> = (&'a str, &'a PatchSet, f32);

fn dense(dtype: DType) -> PatchedLinear {
    let weight = Weight::Dense(tensor(SHAPE, 1, &flex(), dtype));
    let bias = tensor([SHAPE[0]], 2, &flex(), dtype);
    PatchedLinear::from_weights(weight, Some(bias), flex())
}

fn over(format: &str) -> PatchedLinear {
    PatchedLinear::from_weights(packed(format, SHAPE, 1), None, flex())
}

/// A layer, bytes of a merged weight and bias beside it, and the dtype it is merged in.
fn bases() -> Vec<(&'static str, PatchedLinear, u64, DType)> {
    let (weight, bias) = (6 * 32, 6);
    let narrow = 2 * (weight + bias);
    vec![
        (
            "dense f32",
            dense(DType::F32),
            4 * (weight + bias),
            DType::F32,
        ),
        ("dense bf16", dense(DType::BF16), narrow, DType::BF16),
        ("packed f32", over("f32"), 4 * (weight + bias), DType::F32),
        ("packed q8_0", over("q8_0"), 4 * (weight + bias), DType::F32),
    ]
}

/// How far an output of the merged layer may be from the mounted one's: every merged value is rounded once
/// to `dtype`, and two sums of 32 products and a bias are rounded in f32 at each step. All of it is relative
/// to the largest sum of absolute values.
fn tolerance(merged: &PatchedLinear, dtype: DType, input: &Tensor<2>) -> f32 {
    let (weight, bias) = merged.effective_values(&flex()).expect("it is resident");
    let bias = bias.expect("the set adds one").abs();
    let sums = input.clone().abs().matmul(weight.abs().transpose()) + bias.unsqueeze();
    let steps = 2.0 * 33.0 * roundoff(DType::F32);
    (roundoff(dtype) + steps) * largest(&sums)
}

/// Two adapters; the second has a bias and needs the base's values.
fn sets() -> [PatchSet; 2] {
    let gained = TestPatch::new(None, Some(plain([SHAPE[0]], 30))).with_gain(0.5);
    [
        lora_adapter(&[("fc", SHAPE, 20)]),
        patch_set(vec![("fc", gained.shared())]),
    ]
}

fn bytes_of(tree: &impl LayerTree) -> Vec<u8> {
    let mut bytes = Vec::new();
    tree.visit_layers(&mut |_, layer| {
        let visited = layer.visit_base_bytes(&mut |part| bytes.extend_from_slice(part));
        visited.expect("it is resident");
    });
    bytes
}

#[test]
fn merging_equals_mounting_and_is_undone_exactly() {
    let [first, second] = sets();
    for (name, layer, num_bytes, dtype) in bases() {
        let both: [(&str, &PatchSet, f32); 2] = [("first", &first, 0.7), ("second", &second, -1.0)];
        let input = plain([5, SHAPE[1]], 3);
        let (mut side, mut baked) = (
            Toy::new(vec![("fc", layer.clone())]),
            Toy::new(vec![("fc", layer)]),
        );
        let base = (baked.output_bits(&input), bytes_of(&baked));
        swap(&mut side, &[], &both).expect("they fit");
        assert_eq!(baked.layers[0].traffic().written_bytes(), 0);
        let reports = merge(&mut baked, &both).expect("they fit");
        let applied: Vec<_> = reports.iter().map(|report| report.keys_applied()).collect();
        assert_eq!(applied, [2, 1], "{name}");
        let written = baked.layers[0].traffic().written_bytes();
        assert_eq!(written, num_bytes, "{name}: weight and bias");
        let expected = side.layers[0].forward(input.clone());
        let merged = &baked.layers[0];
        let tolerance = tolerance(merged, dtype, &input);
        assert_close(name, &merged.forward(input.clone()), &expected, tolerance);
        assert_ne!(baked.output_bits(&input), base.0, "{name}");
        let adapters = mounted(&baked);
        assert!(
            adapters
                .iter()
                .all(|adapter| adapter.direct_layers == ["fc"])
        );
        assert_eq!(adapters.len(), 2, "{name}");
        assert_eq!(bytes_of(&baked), base.1, "{name}: the base itself stays");
        restore(&mut baked);
        assert!(mounted(&baked).is_empty());
        assert_eq!(
            (baked.output_bits(&input), bytes_of(&baked)),
            base,
            "{name}"
        );
        assert_eq!(
            baked.layers[0].traffic().written_bytes(),
            num_bytes,
            "nothing is written back"
        );
        restore(&mut baked);
    }
}

#[test]
fn a_patch_over_a_merge_is_still_against_the_base() {
    let [lora, _] = sets();
    let gain = TestPatch::gain(1.0);
    let set = patch_set(vec![("fc", gain.shared())]);
    let input = plain([5, SHAPE[1]], 3);
    let (mut toy, mut expected) = (
        Toy::new(vec![("fc", over("f32"))]),
        Toy::new(vec![("fc", over("f32"))]),
    );
    merge(&mut toy, &[("lora", &lora, 0.5)]).expect("it fits");
    mount(&mut toy, "gain", &set, 1.0).expect("it fits");
    swap(
        &mut expected,
        &[],
        &[("lora", &lora, 0.5), ("gain", &set, 1.0)],
    )
    .expect("they fit");
    let expected = expected.layers[0].forward(input.clone());
    assert_close("both", &toy.layers[0].forward(input), &expected, 2e-5);
    let unmerged = values(&plain(SHAPE, 1));
    assert!(gain.uses.seen().iter().all(|seen| *seen == unmerged));
}

#[test]
fn what_cannot_be_merged_is_refused_and_nothing_changes() {
    let [lora, _] = sets();
    let input = plain([5, SHAPE[1]], 3);
    let fresh = || Toy::new(vec![("fc", over("f32"))]);
    let streamed = Toy::load(
        std::sync::Arc::new(source(&[("fc", "F32", SHAPE)])),
        &["fc"],
        LoaderConfig::streamed(flex(), 1 << 20),
    );
    let foreign = lora_adapter(&[("other", SHAPE, 20)]);
    let one: [Set<'_>; 1] = [("b", &lora, 1.0)];
    let cases: [(Toy, &[Set<'_>], &str); 4] = [
        (
            streamed.expect("it fits").0,
            &one,
            "layer `fc` is streamed under a budget, so an adapter cannot be merged into it; load the \
             model without a budget, or mount the adapter instead",
        ),
        (
            fresh(),
            &[("b", &foreign, 1.0)],
            "adapter `b` does not fit this model: none of its 2 keys could be applied; the first: \
             `other`: the model has no layer of this name",
        ),
        (
            fresh(),
            &[("b", &lora, f32::NAN)],
            "the strength of adapter `b` is NaN, expected a finite number",
        ),
        (
            fresh(),
            &[("b", &lora, 1.0), ("b", &lora, 1.0)],
            "an adapter called `b` is mounted already; unmount it first or choose another name",
        ),
    ];
    for (mut toy, sets, expected) in cases {
        let before = toy.output_bits(&input);
        let written = toy.layers[0].traffic().written_bytes();
        assert_eq!(message(merge(&mut toy, sets)), expected);
        assert_eq!(toy.output_bits(&input), before, "{expected}");
        assert_eq!(
            toy.layers[0].traffic().written_bytes(),
            written,
            "{expected}"
        );
    }
}

#[test]
fn layers_without_a_patch_are_left_alone() {
    let layers = [("fc", "F32", SHAPE), ("other", "F32", SHAPE)];
    let [lora, _] = sets();
    let mut toy = resident(&layers);
    let input: Tensor<2> = plain([5, SHAPE[1]], 3);
    let before = bits(&toy.layers[1].forward(input.clone()));
    merge(&mut toy, &[("a", &lora, 1.0)]).expect("it fits");
    assert_eq!(bits(&toy.layers[1].forward(input)), before);
    let written = toy.layers[0].traffic().written_bytes();
    assert_eq!(written, 4 * (6 * 32 + 6), "one layer's weight and bias");
}

#[test]
fn a_bias_keeps_its_own_dtype() {
    let shift = TestPatch::new(Some(plain(SHAPE, 20)), Some(plain([SHAPE[0]], 30)));
    let weight_only = TestPatch::new(Some(plain(SHAPE, 20)), None);
    let over = |bias: Option<Tensor<1>>| {
        let weight = Weight::Dense(tensor(SHAPE, 1, &flex(), DType::BF16));
        let layer = PatchedLinear::from_weights(weight, bias, flex());
        Toy::new(vec![("fc", layer)])
    };
    let merged = |mut toy: Toy, patch: &TestPatch| {
        let set = patch_set(vec![("fc", patch.shared())]);
        merge(&mut toy, &[("set", &set, 1.0)]).expect("it fits");
        let layer = &toy.layers[0];
        let bias = layer.effective_values(&flex()).expect("it is resident").1;
        let written = layer.traffic().written_bytes();
        (bias.map(|bias| values(&bias)), written)
    };
    let (wide, weight) = (plain([SHAPE[0]], 2), 2 * 6 * 32);
    assert_ne!(
        values(&wide),
        values(&wide.clone().cast(DType::BF16)),
        "bf16 would show"
    );
    let kept = merged(over(Some(wide.clone())), &weight_only);
    assert_eq!(kept, (Some(values(&wide)), weight + 4 * 6));
    let shifted = values(&(wide.clone() + plain([SHAPE[0]], 30)));
    let changed = merged(over(Some(wide)), &shift);
    assert_eq!(changed, (Some(shifted), weight + 4 * 6));
    assert_eq!(merged(over(None), &weight_only), (None, weight));
}

/// A base in a file is merged tile by tile of rows, a dense one as a whole: their f32 sums differ by roundings,
/// which may make the last bit of a dtype another one.
#[test]
fn merging_by_tiles_gives_the_sums_of_merging_as_a_whole() {
    for shape in [[6, 32], [64, 32], [65, 96], [600, 160]] {
        for (format, dtype) in [
            ("f32", DType::F32),
            ("bf16", DType::BF16),
            ("f16", DType::F16),
        ] {
            let bias = || Some(plain([shape[0]], 2));
            let packed = PatchedLinear::from_weights(packed(format, shape, 1), bias(), flex());
            let weight = Weight::Dense(tensor(shape, 1, &flex(), dtype));
            let dense = PatchedLinear::from_weights(weight, bias(), flex());
            let sets = [3, 16].map(|rank| patch_set(vec![("fc", lora(shape, rank, 20 + rank))]));
            let merged = |layer: PatchedLinear| {
                let mut toy = Toy::new(vec![("fc", layer)]);
                let sets = [("a", &sets[0], 0.7), ("b", &sets[1], 1.0)];
                merge(&mut toy, &sets).expect("they fit");
                let effective = toy.layers[0].effective_values(&flex());
                let (weight, bias) = effective.expect("it is resident");
                (values(&weight), bias.map(|bias| bits(&bias)))
            };
            let base = packed.base_values(&flex()).expect("it is resident").0;
            let ((found, found_bias), (expected, expected_bias)) = (merged(packed), merged(dense));
            assert_ne!(found, values(&base), "{format} {shape:?}");
            assert_eq!(found_bias, expected_bias, "{format} {shape:?}");
            for (found, expected) in found.iter().zip(&expected) {
                // One step of the dtype, and what 19 products may lose in f32.
                let bound = 2.0 * roundoff(dtype) * expected.abs() + 1e-6;
                let difference = (found - expected).abs();
                assert!(
                    difference <= bound,
                    "{format} {shape:?}: {found} {expected}"
                );
            }
        }
    }
}

/// A merged copy of a packed weight is multiplied with as the packed weight is, and not widened in every pass.
#[test]
fn a_merged_copy_of_a_packed_weight_is_packed() {
    let shape = [24, 32];
    let input = plain([3, shape[1]], 5);
    let thin = || lora(shape, 3, 20);
    let whole = || TestPatch::new(Some(plain(shape, 20)), None).shared();
    for format in ["f32", "bf16", "f16", "q8_0"] {
        for patch in [thin(), whole()] {
            let layer = PatchedLinear::from_weights(packed(format, shape, 1), None, flex());
            let mut toy = Toy::new(vec![("fc", layer)]);
            let set = patch_set(vec![("fc", patch)]);
            merge(&mut toy, &[("set", &set, 1.0)]).expect("it fits");
            let layer = &toy.layers[0];
            let effective = layer.effective_values(&flex());
            let (weight, bias) = effective.expect("it is resident");
            let product = input.clone().matmul(weight.transpose());
            let path = layer.path(&flex(), input.dtype()).expect("it is resident");
            let expected = match bias {
                // It is rounded to the base's dtype, so that it is cast in a pass.
                Some(bias) => product + bias.unsqueeze(),
                None => {
                    assert_eq!(path, Path::Native, "{format}");
                    product
                }
            };
            let found = layer.try_forward(input.clone()).expect("it runs");
            assert_close(format, &found, &expected, 1e-5);
        }
    }
}
