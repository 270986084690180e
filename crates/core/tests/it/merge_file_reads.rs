//! Which tensors of a file a merge changes, and what it reads to do so.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use overglaze_core::{FileLayers, FileMerge};
use overglaze_patches::Patch;
use overglaze_stream::{MemorySource, StreamError, TensorEntry, WeightSource};

use crate::{
    merge_file::Known,
    numbers::{flex, lora, plain},
    test_patch::TestPatch,
    toy::{patch_set, source},
};

const SHAPE: [usize; 2] = [6, 32];

/// A source that remembers what it was asked for.
#[derive(Debug)]
struct Recorded {
    source: MemorySource,
    reads: Mutex<Vec<String>>,
}

impl WeightSource for Recorded {
    fn entries(&self) -> &BTreeMap<String, TensorEntry> {
        self.source.entries()
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        self.source.metadata()
    }

    fn label(&self) -> String {
        self.source.label()
    }

    fn read(&self, name: &str) -> Result<Bytes, StreamError> {
        let mut reads = self.reads.lock().expect("no test panics here");
        reads.push(name.into());
        self.source.read(name)
    }
}

/// How many tensors a merge of `patches` into one layer says it changes, and how often it reads weight and bias.
fn merged(patches: &[Arc<dyn Patch>]) -> (usize, [usize; 2]) {
    let source = Recorded {
        source: source(&[("fc", "BF16", SHAPE)]),
        reads: Mutex::default(),
    };
    let known = Known::of(&source);
    let layer = |path: &str| known.layers.get(path).cloned();
    let layers = FileLayers {
        names: &known.names,
        layer: &layer,
    };
    let sets = patches.iter().enumerate().map(|(index, patch)| {
        let set = patch_set(vec![("fc", Arc::clone(patch))]);
        (format!("set {index}"), set)
    });
    let sets: Vec<_> = sets.collect();
    let sets: Vec<_> = sets.iter().map(|(name, set)| (&**name, set, 0.5)).collect();
    let merge = FileMerge::plan(&source, layers, &sets, &flex()).expect("they fit");
    let layout = merge.layout("out", BTreeMap::new());
    let layout = layout.expect("it is a file");
    merge
        .write(layout, io::sink(), &mut |_| {})
        .expect("it is written");
    let reads = source.reads.lock().expect("no test panics here");
    let num_reads = |name: &str| reads.iter().filter(|read| *read == name).count();
    (merge.num_changed(), ["fc.weight", "fc.bias"].map(num_reads))
}

#[test]
fn a_tensor_counts_where_a_patch_has_a_residual_on_it() {
    let (weight, bias) = (Some(plain(SHAPE, 20)), Some(plain([6], 21)));
    let test = |weight, bias| TestPatch::new(weight, bias).shared();
    let check = |case: &str, patches: &[Arc<dyn Patch>], expected: usize| {
        assert_eq!(merged(patches).0, expected, "{case}");
    };
    check("weight", &[test(weight.clone(), None)], 1);
    check("bias", &[test(None, bias.clone())], 1);
    check("both", &[test(weight.clone(), bias.clone())], 2);
    check("factors and bias", &[lora(SHAPE, 2, 20)], 2);
    check("the base's values", &[TestPatch::gain(0.5).shared()], 1);
    let apart = [test(None, bias), test(weight, None)];
    check("one each", &apart, 2);
}

#[test]
fn a_bias_is_merged_without_a_look_at_the_weight() {
    let bias = TestPatch::new(None, Some(plain([6], 21))).shared();
    // The weight is copied, the bias shown to its patch and read to be added to.
    assert_eq!(merged(&[Arc::clone(&bias)]).1, [1, 2]);
    // The weight is shown to its patch and read to be added to; its patch sees no bias.
    let gain = TestPatch::gain(0.5).shared();
    assert_eq!(merged(&[Arc::clone(&gain)]).1, [2, 1]);
    // The weight's sum shows the bias too.
    assert_eq!(merged(&[bias, gain]).1, [2, 3]);
}
