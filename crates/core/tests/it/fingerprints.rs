//! The hash of a base: where its bytes are does not matter, each of them does.

use std::sync::Arc;

use bytes::Bytes;
use overglaze_core::{
    LoaderConfig, PatchedLayer, PatchedLinear, Weight,
    fingerprint::{Fingerprint, fingerprint},
    mount,
};
use overglaze_stream::{MemorySource, WeightSource};

use crate::{
    numbers::{flex, plain},
    toy::{Toy, lora_adapter, source},
};

const LAYERS: [(&str, &str, [usize; 2]); 3] = [
    ("a", "F32", [6, 32]),
    ("b", "BF16", [6, 32]),
    ("c", "Q8_0", [6, 32]),
];
const PATHS: [&str; 3] = ["a", "b", "c"];
const NUM_BYTES: u64 = 6 * 32 * 4 + 6 * 32 * 2 + 6 * 34 + 3 * 6 * 4;

fn hash(source: MemorySource, config: LoaderConfig) -> Fingerprint {
    let (toy, _) = Toy::load(Arc::new(source), &PATHS, config).expect("it loads");
    hash_of(&toy)
}

fn hash_of(toy: &Toy) -> Fingerprint {
    let mut progress = Vec::new();
    let hash = fingerprint(toy, &mut |read| progress.push(read)).expect("it can be read");
    assert!(progress.is_sorted());
    assert_eq!(progress.last(), Some(&NUM_BYTES));
    hash
}

/// The source with one bit of the byte `index` of `tensor` flipped.
fn flipped(tensor: &str, index: usize) -> MemorySource {
    let (from, mut to) = (source(&LAYERS), MemorySource::new("flipped"));
    for (name, entry) in from.entries() {
        let mut bytes = from.read(name).expect("it has this tensor").to_vec();
        if name == tensor {
            bytes[index] ^= 1;
        }
        let inserted = to.insert(name, &entry.tag, entry.shape.clone(), Bytes::from(bytes));
        inserted.expect("the size is the same");
    }
    to
}

#[test]
fn residency_does_not_show() {
    let expected = hash(source(&LAYERS), LoaderConfig::resident(flex()));
    for budget_bytes in [1 << 20, 6 * 32 * 4 + 6 * 4] {
        let config = LoaderConfig::streamed(flex(), budget_bytes);
        assert_eq!(hash(source(&LAYERS), config), expected);
    }
    assert_eq!(expected.to_hex().len(), 64);
}

#[test]
fn one_flipped_byte_shows() {
    let resident = || LoaderConfig::resident(flex());
    let expected = hash(source(&LAYERS), resident());
    for (tensor, index) in [
        ("a.weight", 0),
        ("a.weight", 6 * 32 * 4 - 1),
        ("b.weight", 7),
        ("c.weight", 34),
        ("c.bias", 5),
    ] {
        assert_ne!(
            hash(flipped(tensor, index), resident()),
            expected,
            "{tensor}"
        );
        let config = LoaderConfig::streamed(flex(), 1 << 20);
        assert_eq!(
            hash(flipped(tensor, index), config),
            hash(flipped(tensor, index), resident())
        );
    }
}

#[test]
fn patches_do_not_show_and_running_changes_nothing() {
    let config = LoaderConfig::resident(flex());
    let (mut toy, _) = Toy::load(Arc::new(source(&LAYERS)), &PATHS, config).expect("it loads");
    let before = hash_of(&toy);
    mount(&mut toy, "a", &lora_adapter(&[("a", [6, 32], 20)]), 1.0).expect("it fits");
    let _ = toy.outputs(&plain([3, 32], 3));
    assert_eq!(hash_of(&toy), before);
}

#[test]
fn a_dense_weight_hashes_like_its_bytes() {
    let of = |weight: Weight| {
        let layer = PatchedLinear::from_weights(weight, None, flex());
        let toy = Toy::new(vec![("a", layer)]);
        fingerprint(&toy, &mut |_| ()).expect("it is resident")
    };
    let dense = of(Weight::Dense(plain([6, 32], 1)));
    assert_eq!(dense, of(crate::numbers::packed("f32", [6, 32], 1)));
    let bytes = crate::numbers::wave(&[6, 32], 1).as_bytes().to_vec();
    let number = |number: usize| (number as u64).to_le_bytes().to_vec();
    let framed = |bytes: &[u8]| [number(bytes.len()), bytes.to_vec()].concat();
    let names = [framed(b"a"), framed(b"f32"), framed(b"")];
    let shape = [number(6), number(32)];
    let parts = [vec![1], framed(&bytes), vec![0]];
    let stream = [names.concat(), shape.concat(), parts.concat()].concat();
    assert_eq!(dense, Fingerprint::of(&stream));
    assert_ne!(dense, of(Weight::Dense(plain([6, 32], 2))));
}

/// Name, type tag and shape.
type Stored<'a> = (&'a str, &'a str, &'a [usize]);

/// The hash of a model of one layer with these tensors, all of the same bytes.
fn of_bytes(path: &str, tensors: &[Stored<'_>], streamed: bool) -> Fingerprint {
    let mut source = MemorySource::new("memory");
    for (name, tag, shape) in tensors {
        let size = if *tag == "F32" { 4 } else { 2 };
        let num_bytes = size * shape.iter().product::<usize>();
        let bytes: Vec<u8> = (0..61).cycle().take(num_bytes).collect();
        let name = format!("{path}.{name}");
        let inserted = source.insert(name, *tag, shape.to_vec(), bytes.into());
        inserted.expect("the size is right");
    }
    let config = if streamed {
        LoaderConfig::streamed(flex(), 1 << 20)
    } else {
        LoaderConfig::resident(flex())
    };
    let (toy, _) = Toy::load(Arc::new(source), &[path], config).expect("it loads");
    fingerprint(&toy, &mut |_| ()).expect("it can be read")
}

#[test]
fn the_same_bytes_of_another_model_show() {
    let models: [(&str, &[Stored<'_>]); 6] = [
        ("fc", &[("weight", "BF16", &[4, 6]), ("bias", "BF16", &[4])]),
        ("fd", &[("weight", "BF16", &[4, 6]), ("bias", "BF16", &[4])]),
        ("fc", &[("weight", "F16", &[4, 6]), ("bias", "BF16", &[4])]),
        ("fc", &[("weight", "BF16", &[4, 6]), ("bias", "F16", &[4])]),
        ("fc", &[("weight", "BF16", &[6, 4])]),
        ("fc", &[("weight", "F32", &[4, 3]), ("bias", "BF16", &[4])]),
    ];
    let hashes: Vec<_> = models
        .iter()
        .map(|(path, tensors)| {
            let hash = of_bytes(path, tensors, false);
            assert_eq!(of_bytes(path, tensors, true), hash, "{path} {tensors:?}");
            hash
        })
        .collect();
    for (index, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..index].contains(hash), "{:?}", models[index]);
    }
}

#[test]
fn a_bias_is_hashed_as_it_is_stored() {
    let mut source = MemorySource::new("memory");
    for (name, shape, num_bytes) in [("fc.weight", vec![4, 6], 48), ("fc.bias", vec![4], 8)] {
        let bytes = Bytes::from((1..=num_bytes).collect::<Vec<u8>>());
        let inserted = source.insert(name, "BF16", shape, bytes);
        inserted.expect("the size is right");
    }
    let config = LoaderConfig::resident(flex());
    let (toy, _) = Toy::load(Arc::new(source), &["fc"], config).expect("it loads");
    let mut parts = Vec::new();
    let visited = toy.layers[0].visit_base_bytes(&mut |bytes| parts.push(bytes.to_vec()));
    visited.expect("it is resident");
    let stored = [48, 8].map(|last| (1..=last).collect::<Vec<u8>>());
    assert_eq!(parts, stored);
}
