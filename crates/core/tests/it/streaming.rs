//! Streamed layers: the same bits as resident ones under any budget that holds the largest layer.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};
use overglaze_core::{BaseWeights, LoaderConfig, PatchedLayer, mount, open, unmount};
use overglaze_patches::PatchSet;
use overglaze_stream::WeightSource;

use crate::{
    numbers::{bits, flex, message, ndarray, plain, tensor, values},
    test_patch::TestPatch,
    toy::{Toy, lora_adapter, patch_set, source},
};

const SHAPE: [usize; 2] = [32, 32];
const PATHS: [&str; 6] = ["l.0", "l.1", "l.2", "l.3", "l.4", "l.5"];
const TAGS: [&str; 6] = ["F32", "BF16", "F16", "Q8_0", "F32", "BF16"];

/// Weight, and bias after it: both are whole multiples of 64.
const F32_LAYER: u64 = 4 * 32 * 32 + 4 * 32;
const TOTAL: u64 = 2 * F32_LAYER + 3 * (2 * 32 * 32 + 4 * 32) + (34 * 32 + 4 * 32);

fn layers() -> Vec<(&'static str, &'static str, [usize; 2])> {
    let layers = PATHS.into_iter().zip(TAGS);
    layers.map(|(path, tag)| (path, tag, SHAPE)).collect()
}

fn memory() -> Arc<dyn WeightSource> {
    Arc::new(source(&layers()))
}

fn adapters() -> [PatchSet; 2] {
    let values = TestPatch::gain(0.25);
    let lora = lora_adapter(&[("l.0", SHAPE, 20), ("l.3", SHAPE, 30), ("l.5", SHAPE, 40)]);
    let gains = vec![("l.1", values.shared()), ("l.3", values.shared())];
    [lora, patch_set(gains)]
}

/// Outputs bare, with one adapter, with both, and bare again.
fn outputs(toy: &mut Toy, input: &Tensor<2>) -> Vec<Vec<u32>> {
    let [lora, gains] = adapters();
    let mut outputs = vec![bits(&toy.chain(input.clone()))];
    mount(toy, "lora", &lora, 0.7).expect("it fits");
    outputs.push(bits(&toy.chain(input.clone())));
    mount(toy, "gains", &gains, -0.5).expect("it fits");
    outputs.push(bits(&toy.chain(input.clone())));
    unmount(toy, "lora").expect("it is mounted");
    unmount(toy, "gains").expect("it is mounted");
    outputs.push(bits(&toy.chain(input.clone())));
    outputs
}

fn streamed(
    source: Arc<dyn WeightSource>,
    budget_bytes: u64,
    lookahead: usize,
) -> (Toy, BaseWeights) {
    let config = LoaderConfig {
        lookahead,
        poison_released: true,
        ..LoaderConfig::streamed(flex(), budget_bytes)
    };
    Toy::load(source, &PATHS, config).expect("every layer fits the budget")
}

/// A budget's bytes, how far ahead it loads, and what to call the case.
fn budgets() -> Vec<(u64, usize, String)> {
    let budgets = [
        ("all", TOTAL),
        ("half", TOTAL / 2),
        ("two layers", 2 * F32_LAYER),
        ("one layer", F32_LAYER),
    ];
    let with_lookahead = |(name, bytes)| {
        let case = move |ahead| (bytes, ahead, format!("{name}, {ahead} ahead"));
        [0, 3].map(case)
    };
    budgets.into_iter().flat_map(with_lookahead).collect()
}

fn check_stats(case: &str, base: &BaseWeights, budget_bytes: u64) {
    let stats = base.streamer.as_ref().expect("it is streamed").stats();
    let peaks = F32_LAYER..=budget_bytes;
    assert!(peaks.contains(&stats.peak_slot_bytes), "{case}: {stats:?}");
    let num_layers = PATHS.len() as u64;
    let is_as_expected = match budget_bytes {
        TOTAL => stats.loads == num_layers,
        _ => stats.loads > num_layers,
    };
    assert!(is_as_expected, "{case}: {stats:?}");
    assert_eq!(base.traffic.num_moves(), 0, "{case}");
    assert_eq!(base.num_bytes, TOTAL, "{case}");
}

fn check_budgets(source: &Arc<dyn WeightSource>, input: &Tensor<2>) {
    let config = LoaderConfig::resident(flex());
    let (mut resident, base) = Toy::load(Arc::clone(source), &PATHS, config).expect("it loads");
    assert!(base.streamer.is_none());
    let expected = outputs(&mut resident, input);
    assert_eq!(expected[0], expected[3]);
    assert_ne!(expected[0], expected[1]);
    assert_ne!(expected[1], expected[2]);
    for (budget_bytes, lookahead, case) in budgets() {
        let (mut toy, base) = streamed(Arc::clone(source), budget_bytes, lookahead);
        assert_eq!(outputs(&mut toy, input), expected, "{case}");
        check_stats(&case, &base, budget_bytes);
    }
}

#[test]
fn any_budget_gives_the_bits_of_the_resident_model() {
    for dtype in [DType::F32, DType::BF16] {
        check_budgets(&memory(), &tensor([4, 32], 3, &flex(), dtype));
    }
}

/// A safetensors file of `tensors`; they lie at odd addresses when `is_odd`.
fn safetensors(tensors: &[(String, &str, Vec<usize>, bytes::Bytes)], is_odd: bool) -> Vec<u8> {
    let (mut header, mut data) = (String::from("{"), Vec::new());
    for (name, tag, shape, bytes) in tensors {
        let (begin, end) = (data.len(), data.len() + bytes.len());
        let comma = if header.len() > 1 { "," } else { "" };
        header.push_str(&format!(
            r#"{comma}"{name}":{{"dtype":"{tag}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#
        ));
        data.extend_from_slice(bytes);
    }
    header.push('}');
    while header.len() % 8 != usize::from(is_odd) {
        header.push(' ');
    }
    let length = (header.len() as u64).to_le_bytes();
    [length.as_slice(), header.as_bytes(), &data].concat()
}

#[test]
fn a_mapped_file_gives_the_same_bits_aligned_or_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let floats = layers().into_iter().map(|(path, tag, shape)| {
        let tag = if tag == "Q8_0" { "BF16" } else { tag };
        (path, tag, shape)
    });
    let floats: Vec<_> = floats.collect();
    let memory = source(&floats);
    let tensors = memory.entries().iter().map(|(name, entry)| {
        let bytes = memory.read(name).expect("it has this tensor");
        (name.clone(), entry.tag.as_str(), entry.shape.clone(), bytes)
    });
    let tensors: Vec<_> = tensors.collect();
    let input = plain([4, 32], 3);
    let run = |source: Arc<dyn WeightSource>, config: LoaderConfig| {
        let (mut toy, _) = Toy::load(source, &PATHS, config).expect("it loads");
        outputs(&mut toy, &input)
    };
    let expected = run(Arc::new(source(&floats)), LoaderConfig::resident(flex()));
    for is_odd in [false, true] {
        let path = folder.path().join(format!("odd-{is_odd}.safetensors"));
        std::fs::write(&path, safetensors(&tensors, is_odd)).expect("the folder is writable");
        let file = || open(&path).expect("it is a safetensors file");
        assert_eq!(
            run(file(), LoaderConfig::resident(flex())),
            expected,
            "odd: {is_odd}"
        );
        let streamed = LoaderConfig::streamed(flex(), F32_LAYER);
        assert_eq!(run(file(), streamed), expected, "odd: {is_odd}");
    }
}

#[test]
fn a_patch_sees_the_values_of_a_streamed_layer() {
    let patch = TestPatch::gain(1.0);
    let (mut toy, _) = streamed(memory(), F32_LAYER, 0);
    let input = plain([4, 32], 3);
    let base = toy.layers[1].forward(input.clone());
    toy.layers[1]
        .add_patch("gain", patch.shared(), -1.0)
        .expect("it fits");
    let output = values(&toy.layers[1].forward(input));
    let rounded = values(&crate::numbers::rounded::<2>(SHAPE, 10, DType::BF16));
    assert_eq!(patch.uses.seen(), [rounded]);
    let bias = values(&plain::<1>([32], 11));
    for (index, found) in output.iter().enumerate() {
        // x · W − x · W: two sums of 32 products in different orders.
        assert!((found - bias[index % 32]).abs() < 1e-4, "value {index}");
    }
    assert!(values(&base) != output);
}

#[test]
fn one_lease_serves_a_whole_pass() {
    let (mut toy, base) = streamed(memory(), F32_LAYER, 0);
    let streamer = base.streamer.expect("it is streamed");
    for name in ["a", "b"] {
        toy.layers[3]
            .add_patch(name, TestPatch::gain(0.5).shared(), 1.0)
            .expect("it fits");
    }
    let acquires = || streamer.stats().hits + streamer.stats().waits;
    let before = acquires();
    let _ = toy.layers[3].forward(plain([4, 32], 3));
    assert_eq!(acquires() - before, 1);
}

#[test]
fn a_streamed_layer_runs_for_an_input_on_the_other_backend() {
    let (toy, base) = streamed(memory(), F32_LAYER, 0);
    let output = toy.chain(tensor([4, 32], 3, &ndarray(), DType::F32));
    let expected = toy.chain(plain([4, 32], 3));
    // Packed weights are read in place for both; the hyperbolic tangent differs by backend.
    crate::numbers::assert_close("ndarray", &output, &expected, 1e-4);
    assert_eq!(
        (base.traffic.num_moves(), base.traffic.moved_bytes()),
        (6, 6 * 4 * 32)
    );
}

#[test]
fn a_layer_over_the_budget_is_an_error_before_anything_runs() {
    let config = LoaderConfig::streamed(flex(), F32_LAYER - 1);
    let loaded = Toy::load(memory(), &PATHS, config).map(drop);
    let expected = format!(
        "the layer `l.0` alone needs {F32_LAYER} bytes, more than the budget of {}; raise the budget to \
         at least {F32_LAYER} bytes",
        F32_LAYER - 1
    );
    assert_eq!(message(loaded), expected);
}

#[test]
fn clones_share_one_streamer() {
    let (toy, base) = streamed(memory(), 2 * F32_LAYER, 2);
    let input = plain([4, 32], 3);
    let mut tenants = [toy.clone(), toy];
    let [lora, _] = adapters();
    mount(&mut tenants[0], "lora", &lora, 0.7).expect("it fits");
    let alone = tenants
        .each_ref()
        .map(|tenant| bits(&tenant.chain(input.clone())));
    let together: Vec<_> = std::thread::scope(|scope| {
        let runs = tenants.each_ref().map(|tenant| {
            let input = input.clone();
            scope.spawn(move || bits(&tenant.chain(input)))
        });
        runs.into_iter()
            .map(|run| run.join().expect("it runs"))
            .collect()
    });
    assert_eq!(together, alone);
    assert_ne!(alone[0], alone[1]);
    let stats = base.streamer.expect("it is streamed").stats();
    assert!(stats.peak_slot_bytes <= 2 * F32_LAYER);
}
