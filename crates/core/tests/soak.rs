//! A thousand mounts and unmounts of random adapters on a model of every layer: the heap stays flat, the base stays
//! as it is, and the model computes at the end what it computed at the start.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use burn::tensor::DType;
use overglaze_core::{
    Error, LayerLoader, LayerTree, LoaderConfig, Mounting, NameTable, PatchedLayer, Placement,
    fingerprint::fingerprint, mounted, reweight, swap, unmount,
};
use overglaze_patches::{Component, LayerShape, PatchEntry, PatchSet, TargetName};
use overglaze_stream::MemorySource;

use crate::{
    kinds::KINDS,
    layers::{Runs, layers},
    numbers::{bits, flex, stored, wave},
};

#[path = "it/matrix/keys.rs"]
mod keys;
#[path = "it/matrix/kind_case.rs"]
mod kind_case;
#[path = "it/matrix/kinds.rs"]
#[expect(dead_code, reason = "the matrix uses the rest")]
mod kinds;
#[path = "it/matrix/layers.rs"]
#[expect(dead_code, reason = "the matrix uses the rest")]
mod layers;
#[path = "it/numbers.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod numbers;

const NUM_MOUNTS: usize = 1000;
/// Mounts after which threads, their buffers and the tables of the allocator have the size they keep.
const NUM_WARM: usize = 100;
/// Adapters that are mounted at once, at most.
const MAX_NESTED: usize = 4;

/// Names and tables of a few entries more or less; a leaked patch now and then is more.
const SLACK_BYTES: usize = 2 << 10;

static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call goes to the system allocator unchanged; only a number is kept besides.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promises are those of this method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promises are those of this method.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promises are those of this method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Numbers that look random and are the same in every run: `SplitMix64` (Steele et al. 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mixed = mixed ^ (mixed >> 31);
        usize::try_from(mixed % limit as u64).expect("it is below a usize")
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// One layer of every case, over bases of all formats in turn.
struct Model {
    layers: Vec<(String, Box<dyn Runs>)>,
    names: NameTable,
}

impl Model {
    fn new() -> Self {
        let mut source = MemorySource::new("soak.safetensors");
        for (index, case) in layers().iter().enumerate() {
            let tag = FORMATS[index % FORMATS.len()];
            let bias_tag = if tag == "Q8_0" { "F32" } else { tag };
            let tensors = [
                ("weight", tag, case.shape.dims()),
                ("bias", bias_tag, &case.shape.dims()[..1]),
            ];
            for (name, tag, dims) in tensors.into_iter().take(1 + usize::from(case.has_bias)) {
                let bytes = stored(&wave(dims, index + 200), tag);
                let inserted = source.insert(format!("layers.{index}.{name}"), tag, dims, bytes);
                inserted.expect("the bytes are of that shape");
            }
        }
        let mut loader = LayerLoader::new(Arc::new(source), LoaderConfig::resident(flex()));
        let mut names = NameTable::default();
        let layers = layers().into_iter().enumerate().map(|(index, case)| {
            let path = format!("layers.{index}");
            let layer = (case.load)(&mut loader, &path).expect("the source has it");
            let added = names.add_layer(&path, layer.weight_shape()[0]);
            added.expect("the paths are distinct");
            (path, layer)
        });
        let layers = layers.collect();
        drop(loader.finish().expect("nothing is streamed"));
        Self { layers, names }
    }

    /// Bits of every layer's output.
    fn outputs(&self) -> Vec<Vec<u32>> {
        let outputs = self.layers.iter();
        outputs
            .map(|(_, layer)| bits(&layer.run(DType::F32, DType::F32)))
            .collect()
    }

    /// Random kinds on some of the layers.
    fn random_set(&self, random: &mut Random) -> PatchSet {
        let num_patches = 1 + random.below(3);
        let first = random.below(self.layers.len());
        let entries = (0..num_patches).map(|index| {
            let (path, layer) = &self.layers[(first + index) % self.layers.len()];
            random_entry(path, &layer.layer_shape(), random)
        });
        PatchSet::new("random", entries.collect())
    }
}

fn random_entry(path: &str, shape: &LayerShape, random: &mut Random) -> PatchEntry {
    let fitting: Vec<_> = KINDS.iter().filter(|kind| (kind.fits)(shape)).collect();
    let dtype = random.pick(&[DType::F32, DType::BF16, DType::F16]);
    PatchEntry {
        target: TargetName::Dotted(path.into()),
        component: Component::Denoiser,
        patch: random.pick(&fitting).patch(shape, dtype),
        keys: vec![format!("{path}.random")],
        dialect: "test",
    }
}

impl LayerTree for Model {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        for (path, layer) in &self.layers {
            visitor(path, &**layer);
        }
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        for (path, layer) in &mut self.layers {
            visitor(path, &mut **layer);
        }
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

/// A model, the names of what is mounted on it, and chance.
struct Soak {
    model: Model,
    mounted: Vec<String>,
    num_mounts: usize,
    random: Random,
}

impl Soak {
    fn step(&mut self) {
        match self.random.below(8) {
            0..=2 if self.mounted.len() < MAX_NESTED => self.mount(),
            3 | 4 => self.unmount(),
            5 => self.swap(),
            6 => self.reweight(),
            _ => drop(self.model.outputs()),
        }
    }

    fn mount(&mut self) {
        let set = self.model.random_set(&mut self.random);
        self.add(&[], &set);
    }

    /// Lays `set` over the model in the place of `removed`, unless both replace what another one does.
    fn add(&mut self, removed: &[&str], set: &PatchSet) {
        let name = format!("adapter {:04}", self.num_mounts);
        let placement = self.random.pick(&PLACEMENTS);
        let strength = self.random.pick(&STRENGTHS);
        let mounting = Mounting::new(&name, set, strength).with_placement(placement);
        match swap(&mut self.model, removed, &[mounting]) {
            Ok(_) => {
                self.mounted
                    .retain(|name| !removed.contains(&name.as_str()));
                self.mounted.push(name);
                self.num_mounts += 1;
            }
            Err(Error::TwoReplacements { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Takes one of the adapters off, the last or any other.
    fn unmount(&mut self) {
        if !self.mounted.is_empty() {
            let index = self.random.below(self.mounted.len());
            let name = self.mounted.remove(index);
            unmount(&mut self.model, &name).expect("it is mounted");
        }
    }

    fn swap(&mut self) {
        if let Some(oldest) = self.mounted.first().cloned() {
            let set = self.model.random_set(&mut self.random);
            self.add(&[&oldest], &set);
        }
    }

    fn reweight(&mut self) {
        let strength = self.random.pick(&STRENGTHS);
        if let Some(name) = self.mounted.last() {
            reweight(&mut self.model, name, strength).expect("it is mounted");
        }
    }

    /// Takes everything off, in the order of mounting.
    fn clear(&mut self) {
        for name in self.mounted.drain(..) {
            unmount(&mut self.model, &name).expect("it is mounted");
        }
        assert!(mounted(&self.model).is_empty());
    }
}

#[test]
fn a_thousand_mounts_leave_nothing_behind() {
    // Threads keep their buffers; a second one that first gets work late would look like a leak.
    let single = rayon::ThreadPoolBuilder::new().num_threads(1);
    single.build_global().expect("it is the first pool");
    let model = Model::new();
    let (before, hash) = (model.outputs(), fingerprint(&model, &mut |_| ()));
    let mut soak = Soak {
        model,
        mounted: Vec::new(),
        num_mounts: 0,
        random: Random(7),
    };
    let mut live = Vec::new();
    while soak.num_mounts < NUM_MOUNTS {
        soak.step();
        if soak.num_mounts >= NUM_WARM * (live.len() + 1) {
            soak.clear();
            assert_eq!(soak.model.outputs(), before, "{} mounts", soak.num_mounts);
            live.push(LIVE.load(Ordering::SeqCst));
        }
    }
    let grown = live.iter().map(|bytes| bytes.saturating_sub(live[0])).max();
    assert!(
        grown < Some(SLACK_BYTES),
        "bytes after each hundred: {live:?}"
    );
    assert_eq!(
        fingerprint(&soak.model, &mut |_| ()).expect("it is in place"),
        hash.expect("it is in place"),
        "the base"
    );
}

const FORMATS: [&str; 4] = ["F32", "BF16", "F16", "Q8_0"];
const STRENGTHS: [f32; 5] = [1.0, 0.5, -1.0, 1.3, 0.0];
const PLACEMENTS: [Placement; 3] = [Placement::Sidecar, Placement::Direct, Placement::Automatic];
