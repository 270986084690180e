//! Peak heap, measured with a counting allocator: opening a file allocates for its header only, and
//! streaming it stays within the budget.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs::File,
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use overglaze_stream::{
    Slot, StreamError, Streamable, Streamer, StreamerConfig, WeightSource, open,
};

const NUM_LAYERS: usize = 32;
const LAYER_BYTES: usize = 2 << 20;
const BUDGET_BYTES: usize = 8 << 20;

/// Header, tables, a thread, and 63 bytes of alignment a slot.
const SLACK_BYTES: usize = 256 << 10;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

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
}

/// Result of `work`, and the most heap that was live above what was live before.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Ordering::SeqCst);
    PEAK.store(before, Ordering::SeqCst);
    let result = work();
    (result, PEAK.load(Ordering::SeqCst) - before)
}

struct Layer(String);

impl Streamable for Layer {
    type Resident = Bytes;

    fn name(&self) -> &str {
        &self.0
    }

    fn num_bytes(&self) -> u64 {
        LAYER_BYTES as u64
    }

    fn load(&self, source: &dyn WeightSource, mut slot: Slot) -> Result<Bytes, StreamError> {
        source.read_into(&self.0, slot.as_mut_slice())?;
        Ok(slot.freeze())
    }
}

fn write_model(path: &Path) {
    let tensors: Vec<_> = (0..NUM_LAYERS)
        .map(|index| {
            let (begin, end) = (index * LAYER_BYTES, (index + 1) * LAYER_BYTES);
            format!(
                r#""layer.{index}":{{"dtype":"BF16","shape":[1024,1024],"data_offsets":[{begin},{end}]}}"#
            )
        })
        .collect();
    let header = format!("{{{}}}", tensors.join(","));
    let mut file = File::create(path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(header.as_bytes()).unwrap();
    for index in 0..NUM_LAYERS {
        let layer = vec![u8::try_from(index + 1).unwrap(); LAYER_BYTES];
        file.write_all(&layer).unwrap();
    }
}

fn run(streamer: &Arc<Streamer<Layer>>, num_cycles: usize) -> usize {
    let mut total = 0;
    for index in (0..NUM_LAYERS).cycle().take(num_cycles * NUM_LAYERS) {
        let lease = streamer.acquire(streamer.slot_id(index)).unwrap();
        assert_eq!(lease[LAYER_BYTES - 1], lease[0]);
        total += usize::from(lease[0]);
    }
    total
}

// One test, for the counters are of the whole process.
#[test]
fn heap_stays_within_header_and_budget() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    write_model(&path);

    let (source, opening) = peak_of(|| open(&path, &|_| None).unwrap());
    assert!(opening <= SLACK_BYTES, "opening took {opening} bytes");

    let (_views, reading) = peak_of(|| {
        let names = source.entries().keys();
        names
            .map(|name| source.read(name).unwrap())
            .collect::<Vec<_>>()
    });
    assert!(reading <= SLACK_BYTES, "views took {reading} bytes");

    let layers = (0..NUM_LAYERS).map(|index| Layer(format!("layer.{index}")));
    let config = StreamerConfig {
        budget_bytes: BUDGET_BYTES as u64,
        lookahead: 2,
        poison_released: true,
    };
    let (streamer, making) =
        peak_of(|| Streamer::new(Arc::clone(&source), layers.collect(), config).unwrap());
    assert!(
        making <= SLACK_BYTES,
        "a streamer took {making} bytes before any weight was wanted"
    );

    let (total, streaming) = peak_of(|| run(&streamer, 3));
    assert_eq!(total, 3 * NUM_LAYERS * (NUM_LAYERS + 1) / 2);
    assert!(
        streaming <= BUDGET_BYTES + SLACK_BYTES,
        "streaming took {streaming} bytes"
    );
    assert!(streamer.stats().peak_slot_bytes <= BUDGET_BYTES as u64);
    assert!(streamer.stats().loads > NUM_LAYERS as u64);
}
