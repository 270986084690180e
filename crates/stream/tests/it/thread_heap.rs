//! Peak heap of one thread, measured with a counting allocator: tests on other threads do not disturb it.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call goes to the system allocator unchanged; only numbers are kept besides.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promises are those of this method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promises are those of this method.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's promises are those of this method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(num_bytes: isize) {
    LIVE.set(LIVE.get() + num_bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

/// Result of `work`, and the most heap of this thread that was live above what was live before.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get() - before)
}
