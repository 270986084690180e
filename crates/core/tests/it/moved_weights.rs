//! Packed weights of every format on their way from the source into a slot, out of it and back again.

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use overglaze_core::{
    BaseWeights, LoaderConfig, PatchedLayer, PatchedLinear, fingerprint::Fingerprint, packed_weight,
};
use overglaze_stream::WeightSource;

use crate::{
    numbers::{bits, flex, ndarray, plain, stored, values, wave},
    packed_weights::{PackedCase, packed_cases},
    toy::Toy,
};

/// A layer that fills the budget alone, so that the tested one leaves when it comes.
const OTHER: &str = "other";
const OTHER_WIDTH: usize = 16;

/// The tested layer and the other one.
fn load(case: &PackedCase, config: impl FnOnce(u64) -> LoaderConfig) -> (Toy, BaseWeights) {
    let mut source = case.source.clone();
    let shape = [num_other_rows(case), OTHER_WIDTH];
    let weight = stored(&wave(&shape, 5), "F32");
    let budget = weight.len() as u64;
    let inserted = source.insert(format!("{OTHER}.weight"), "F32", shape, weight);
    inserted.expect("the bytes are of that shape");
    let paths = [&*case.path, OTHER];
    let loaded = Toy::load(Arc::new(source), &paths, config(budget));
    loaded.unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

/// More bytes than the tested layer has, with the gaps between its parts.
fn num_other_rows(case: &PackedCase) -> usize {
    let entries = case.source.entries().iter();
    let sizes = entries.map(|(_, entry)| entry.num_bytes.next_multiple_of(64));
    let num_bytes = usize::try_from(sizes.sum::<u64>()).expect("cases are small");
    num_bytes.div_ceil(4 * OTHER_WIDTH) + 1
}

fn streamed(case: &PackedCase, device: &Device) -> (Toy, BaseWeights) {
    load(case, |budget_bytes| LoaderConfig {
        lookahead: 0,
        poison_released: true,
        ..LoaderConfig::streamed(device.clone(), budget_bytes)
    })
}

fn resident(case: &PackedCase) -> PatchedLinear {
    let (toy, _) = load(case, |_| LoaderConfig::resident(flex()));
    toy.layers[0].clone()
}

/// Lets the tested layer leave its slot, which is then filled with garbage and with the other one.
fn evict(toy: &Toy) {
    let _ = toy.layers[1].forward(plain([1, OTHER_WIDTH], 6));
}

fn num_loads(base: &BaseWeights) -> u64 {
    let streamer = base.streamer.as_ref().expect("it is streamed");
    streamer.stats().loads
}

/// The hash of each part, the weight's first.
fn hashes(layer: &PatchedLinear) -> Vec<Fingerprint> {
    let mut hashes = Vec::new();
    let visited = layer.visit_base_bytes(&mut |part| hashes.push(Fingerprint::of(part)));
    visited.expect("it can be loaded");
    hashes
}

/// The same of the source's own bytes.
fn source_hashes(case: &PackedCase) -> Vec<Fingerprint> {
    let (packed, _) =
        packed_weight(&case.source, &format!("{}.weight", case.path)).expect("it is packed");
    let parts = packed
        .parts()
        .iter()
        .map(|part| Fingerprint::of(&part.bytes));
    let bias = case.source.read(&format!("{}.bias", case.path)).ok();
    parts
        .chain(bias.map(|bias| Fingerprint::of(&bias)))
        .collect()
}

#[test]
fn no_move_changes_a_byte_of_any_part() {
    for case in packed_cases() {
        let name = format!("{}, {}, {}", case.format, case.name, case.path);
        let expected = source_hashes(&case);
        assert_eq!(hashes(&resident(&case)), expected, "{name}: in place");
        for device in [flex(), ndarray()] {
            let (toy, base) = streamed(&case, &device);
            let input = wave(&[2, case.shape[1]], 3);
            for round in 0..3 {
                assert_eq!(num_loads(&base), 2 * round, "{name}: nothing has stayed");
                assert_eq!(hashes(&toy.layers[0]), expected, "{name}: round {round}");
                let input = Tensor::<2>::from_data(input.clone(), &device);
                let _ = toy.layers[0].forward(input);
                assert_eq!(hashes(&toy.layers[0]), expected, "{name}: multiplied");
                evict(&toy);
            }
        }
        assert_eq!(source_hashes(&case), expected, "{name}: the source");
    }
}

#[test]
fn a_row_alone_has_the_output_it_has_in_a_batch() {
    for case in packed_cases() {
        let layer = resident(&case);
        let (toy, _) = streamed(&case, &flex());
        // As many rows as make each of the kernels run.
        for num_rows in [1, 3, 9, 100] {
            let input = plain([num_rows, case.shape[1]], num_rows);
            let batch = layer.forward(input.clone());
            assert!(values(&batch).iter().any(|value| *value != 0.0));
            evict(&toy);
            assert_eq!(bits(&toy.layers[0].forward(input.clone())), bits(&batch));
            for row in [0, num_rows / 2, num_rows - 1] {
                let input = input.clone().slice_dim(0, row..row + 1);
                let alone = layer.forward(input.clone());
                check(
                    &case,
                    &input,
                    &alone,
                    &batch.clone().slice_dim(0, row..row + 1),
                );
                evict(&toy);
                assert_eq!(bits(&toy.layers[0].forward(input)), bits(&alone));
            }
        }
    }
}

/// No format rounds its input: what differs is the order of a sum in f32. Each of the two is off by at most a roundoff for
/// every term and a few for scales and bias, of the sum of the terms' sizes.
fn check(case: &PackedCase, input: &Tensor<2>, alone: &Tensor<2>, in_batch: &Tensor<2>) {
    let weight = TensorData::new(case.values.clone(), case.shape);
    let weight = Tensor::<2>::from_data(weight, &flex());
    let sizes = input.clone().abs().matmul(weight.abs().transpose());
    let num_roundings = 2.0 * (case.shape[1] + 8) as f32;
    let (alone, in_batch) = (values(alone), values(in_batch));
    for (index, size) in values(&sizes).into_iter().enumerate() {
        let (alone, in_batch) = (alone[index], in_batch[index]);
        let bound = num_roundings * f32::EPSILON / 2.0 * (size + alone.abs());
        let difference = (alone - in_batch).abs();
        assert!(
            difference <= bound,
            "{}, {}: {alone} alone, {in_batch} in a batch",
            case.format,
            case.name
        );
    }
}
