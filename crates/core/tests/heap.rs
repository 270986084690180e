//! Heap, measured with a counting allocator: no weight is allocated before its bytes are wanted, none is
//! copied when it changes hands, and what a mount takes an unmount gives back.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::BTreeMap,
    fs::File,
    io::Write,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use burn::{
    module::{Module, Param},
    nn::{Linear, LinearConfig},
    tensor::{DType, Device, Tensor, TensorData},
};
use overglaze_core::{
    FileLayer, FileLayers, FileMerge, LayerLoader, LoaderConfig, NameTable, PatchedLayer,
    PatchedLinear, Weight, load_module, open,
};
use overglaze_patches::{
    LayerShape, Patch, PatchEntry, PatchSet, TargetName, TensorGroup, registry,
};
use overglaze_stream::WeightSource;

const NUM_LAYERS: usize = 16;
const WIDTH: usize = 1024;
const WEIGHT_BYTES: usize = 4 * WIDTH * WIDTH;

/// Headers, tables, threads, and activations of a few rows.
const SLACK_BYTES: usize = 256 << 10;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// One measurement at a time, where tests share a process.
static TURN: Mutex<()> = Mutex::new(());

struct Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call goes to the system allocator unchanged; only numbers are kept besides.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those of this method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
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

fn count(num_bytes: usize) {
    let live = LIVE.fetch_add(num_bytes, Ordering::SeqCst) + num_bytes;
    PEAK.fetch_max(live, Ordering::SeqCst);
    LARGEST.fetch_max(num_bytes, Ordering::SeqCst);
}

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `work` did to the heap.
#[derive(Debug)]
struct Heap {
    /// The most that was live above what was live before.
    peak: usize,
    /// The largest single allocation.
    largest: usize,
    /// What is live now above what was live before.
    kept: isize,
}

fn measured<T>(work: impl FnOnce() -> T) -> (T, Heap) {
    let before = LIVE.load(Ordering::SeqCst);
    PEAK.store(before, Ordering::SeqCst);
    LARGEST.store(0, Ordering::SeqCst);
    let result = work();
    let heap = Heap {
        peak: PEAK.load(Ordering::SeqCst) - before,
        largest: LARGEST.load(Ordering::SeqCst),
        kept: LIVE.load(Ordering::SeqCst).cast_signed() - before.cast_signed(),
    };
    (result, heap)
}

fn device() -> Device {
    Device::flex()
}

fn input() -> Tensor<2> {
    Tensor::ones([2, WIDTH], &device())
}

/// A safetensors file of `NUM_LAYERS` weights of zeros, 64 MiB, most of it a hole.
fn write_file(path: &Path) {
    let entry = |index: usize| {
        let (begin, end) = (index * WEIGHT_BYTES, (index + 1) * WEIGHT_BYTES);
        format!(
            r#""layers.{index}.weight":{{"dtype":"F32","shape":[{WIDTH},{WIDTH}],"data_offsets":[{begin},{end}]}}"#
        )
    };
    let entries: Vec<_> = (0..NUM_LAYERS).map(entry).collect();
    let mut header = format!("{{{}}}", entries.join(","));
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    let length = header.len() as u64;
    let mut file = File::create(path).expect("the folder is writable");
    file.write_all(&length.to_le_bytes())
        .expect("there is room");
    file.write_all(header.as_bytes()).expect("there is room");
    let size = 8 + length + (NUM_LAYERS * WEIGHT_BYTES) as u64;
    file.set_len(size).expect("there is room");
}

fn build(source: Arc<dyn WeightSource>, config: LoaderConfig) -> Vec<PatchedLinear> {
    let mut loader = LayerLoader::new(source, config);
    let layers = (0..NUM_LAYERS).map(|index| {
        let layer = loader.linear(&format!("layers.{index}"));
        layer.expect("the file has it")
    });
    let layers = layers.collect();
    loader.finish().expect("every layer fits the budget");
    layers
}

fn chain(layers: &[PatchedLinear], input: Tensor<2>) -> Tensor<2> {
    layers
        .iter()
        .fold(input, |input, layer| layer.forward(input) + 1.0)
}

#[test]
fn building_and_running_a_model_over_a_mapped_file_copies_no_weight() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    write_file(&path);
    let work = || {
        let source = open(&path).expect("it is a safetensors file");
        build(source, LoaderConfig::resident(device()))
    };
    let (layers, heap) = measured(work);
    assert!(heap.peak < SLACK_BYTES, "building: {heap:?}");
    let (output, heap) = measured(|| chain(&layers, input()));
    assert!(heap.largest < WEIGHT_BYTES / 2, "running: {heap:?}");
    output
        .into_data()
        .assert_eq(&TensorData::ones::<f32, _>([2, WIDTH]), false);
}

#[test]
fn a_streamed_model_allocates_when_it_runs_and_stays_within_its_budget() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    write_file(&path);
    let budget = 2 * WEIGHT_BYTES;
    let config = LoaderConfig {
        lookahead: 0,
        ..LoaderConfig::streamed(device(), budget as u64)
    };
    let work = || build(open(&path).expect("it is a safetensors file"), config);
    let (layers, heap) = measured(work);
    assert!(heap.peak < SLACK_BYTES, "building: {heap:?}");
    let (output, heap) = measured(|| chain(&layers, input()));
    assert!(heap.largest >= WEIGHT_BYTES, "the slots are seen: {heap:?}");
    assert!(heap.peak < budget + SLACK_BYTES, "running: {heap:?}");
    output
        .into_data()
        .assert_eq(&TensorData::ones::<f32, _>([2, WIDTH]), false);
    let (_, heap) = measured(|| drop(layers));
    assert!(
        heap.kept <= -(WEIGHT_BYTES.cast_signed()),
        "the slots are freed: {heap:?}"
    );
}

#[derive(Module, Debug)]
struct Net {
    layers: Vec<Linear>,
}

#[test]
fn loading_a_burn_module_initializes_and_copies_nothing() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    write_file(&path);
    let source = open(&path).expect("it is a safetensors file");
    let (net, heap) = measured(|| {
        let layer = |_| {
            LinearConfig::new(WIDTH, WIDTH)
                .with_bias(false)
                .init(&device())
        };
        let net = Net {
            layers: (0..NUM_LAYERS).map(layer).collect(),
        };
        let (net, report) = load_module(net, &*source, &device()).expect("it fits");
        assert_eq!(report.assigned.len(), NUM_LAYERS);
        net
    });
    assert!(heap.peak < SLACK_BYTES, "{heap:?}");
    let sum = net.layers[3].weight.val().sum().into_scalar::<f32>();
    assert!(sum == 0.0, "the file holds zeros: {sum}");
}

#[test]
fn parameters_change_hands_without_a_copy() {
    let _turn = turn();
    for is_lazy in [true, false] {
        let mut linear = LinearConfig::new(WIDTH, WIDTH).init(&device());
        if !is_lazy {
            linear.weight = Param::from_tensor(Tensor::ones([WIDTH, WIDTH], &device()));
        }
        let (layer, heap) = measured(|| PatchedLinear::from(linear));
        assert!(heap.largest < WIDTH, "from, lazy {is_lazy}: {heap:?}");
        let (clone, heap) = measured(|| layer.clone());
        assert!(heap.largest < WIDTH, "clone, lazy {is_lazy}: {heap:?}");
        drop(clone);
        let (inner, heap) = measured(|| layer.into_inner().expect("nothing is mounted"));
        assert!(heap.largest < WIDTH, "into_inner, lazy {is_lazy}: {heap:?}");
        assert_eq!(inner.weight.is_initialized(), !is_lazy);
    }
}

/// A low-rank patch in f16, so that its copy for computing is another one.
fn patch() -> Arc<dyn Patch> {
    let rank = 16;
    let tensor =
        |shape: [usize; 2]| TensorData::full::<f32, _>(shape, 0.5).convert_dtype(DType::F16);
    let tensors = [
        ("lora_up.weight", tensor([WIDTH, rank])),
        ("lora_down.weight", tensor([rank, WIDTH])),
    ];
    let tensors = tensors.map(|(key, data)| (String::from(key), data));
    let group = TensorGroup::new("layer", tensors.into());
    registry::load(group, &device()).expect("the factors fit")
}

#[test]
fn an_unmount_frees_the_copy_that_a_mount_made() {
    let _turn = turn();
    let weight = Weight::Dense(Tensor::ones([WIDTH, WIDTH], &device()));
    let mut layer = PatchedLinear::from_weights(weight, None, device());
    drop(layer.forward(input()));
    let copy = 2 * 16 * WIDTH * 4;
    let (patch, _) = measured(patch);
    let mount = || {
        layer.add_patch("lora", patch, 1.0).expect("it fits");
        drop(layer.forward(input()));
    };
    let ((), heap) = measured(mount);
    let kept = heap.kept;
    assert!(
        kept >= copy.cast_signed() && kept < 2 * copy.cast_signed(),
        "{heap:?}"
    );
    let ((), heap) = measured(|| assert!(layer.remove_patch("lora")));
    // The patch as loaded goes too: half the size of its copy.
    assert!(heap.kept <= -(copy.cast_signed()), "{heap:?}");
}

#[test]
fn merging_into_a_file_holds_one_tensor_at_a_time() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    write_file(&path);
    let source = open(&path).expect("it is a safetensors file");
    let mut names = NameTable::default();
    let entries = (0..NUM_LAYERS).map(|index| {
        let path = format!("layers.{index}");
        names.add_layer(&path, WIDTH).expect("the paths differ");
        PatchEntry {
            component: overglaze_patches::Component::Denoiser,
            target: TargetName::Dotted(path),
            patch: patch(),
            keys: Vec::new(),
            dialect: "test",
        }
    });
    let set = PatchSet::new("set", entries.collect());
    let layer = |path: &str| {
        Some(FileLayer {
            shape: LayerShape::linear(WIDTH, WIDTH),
            weight: format!("{path}.weight"),
            bias: None,
        })
    };
    let layers = FileLayers {
        names: &names,
        layer: &layer,
    };
    let work = || {
        let merge = FileMerge::plan(&*source, layers, &[("set", &set, 1.0)], &device());
        let merge = merge.expect("it fits");
        let layout = merge.layout("out", BTreeMap::new()).expect("it is a file");
        merge.write(layout, std::io::sink(), &mut |_| {})
    };
    // The first run fills the buffers that threads keep.
    work().expect("it is written");
    let (result, heap) = measured(work);
    result.expect("it is written");
    assert!(heap.largest >= WEIGHT_BYTES, "residuals are seen: {heap:?}");
    // The residual, and the tensor's new bytes; the base stays in the mapped file.
    assert!(heap.peak < 2 * WEIGHT_BYTES + 4 * SLACK_BYTES, "{heap:?}");
    assert!(heap.kept < SLACK_BYTES.cast_signed(), "{heap:?}");
}
