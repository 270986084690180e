//! A packed product allocates its output and tile buffers, never a decoded weight.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use burn::tensor::{Device, Tensor, TensorData};
use overglaze_quant::{Parts, QuantizedTensor, formats_by_name, values_bytes};
use rayon::ThreadPoolBuilder;

const SHAPE: [usize; 2] = [8192, 1024];
const DECODED_BYTES: usize = SHAPE[0] * SHAPE[1] * size_of::<f32>();
const NUM_THREADS: usize = 2;
/// A tile of 256 rows, and as much again for what the `gemm` crate packs.
const BUFFER_BYTES: usize = NUM_THREADS * 2 * 256 * SHAPE[1] * size_of::<f32>();

#[test]
fn a_packed_product_never_decodes_the_whole_weight() {
    const { assert!(BUFFER_BYTES * 8 <= DECODED_BYTES) };
    let pool = ThreadPoolBuilder::new()
        .num_threads(NUM_THREADS)
        .build()
        .unwrap();
    let device = Device::flex();
    for format in formats_by_name() {
        let Some(block) = format.block() else {
            continue;
        };
        let bytes = vec![0x31; values_bytes(format.name(), SHAPE, block).unwrap()];
        let weight = QuantizedTensor::new(format, SHAPE, Parts::values(bytes.into())).unwrap();
        for num_rows in [1, 32, 200] {
            let input = || {
                let data = TensorData::new(vec![1.0f32; num_rows * SHAPE[1]], [num_rows, SHAPE[1]]);
                Tensor::<2>::from_data(data, &device)
            };
            // The first product makes the threads' own buffers, which stay.
            pool.install(|| drop(weight.linear(input())));
            let input = input();
            let peak_bytes = pool.install(|| peak_of(|| drop(weight.linear(input))));
            let output_bytes = num_rows * SHAPE[0] * size_of::<f32>();
            assert!(peak_bytes >= output_bytes, "the counter does not count");
            assert!(
                peak_bytes <= output_bytes + BUFFER_BYTES,
                "{}, {num_rows} rows: {peak_bytes} bytes at once for an output of {output_bytes}",
                format.name(),
            );
        }
    }
}

/// The most bytes allocated at once while `run` ran, beyond what was allocated before.
fn peak_of(run: impl FnOnce()) -> usize {
    let before = ALLOCATED_BYTES.load(SeqCst);
    PEAK_BYTES.store(before, SeqCst);
    run();
    PEAK_BYTES.load(SeqCst) - before
}

static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator that counts")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let allocated = ALLOCATED_BYTES.fetch_add(layout.size(), SeqCst) + layout.size();
        PEAK_BYTES.fetch_max(allocated, SeqCst);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size(), SeqCst);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
