//! Which devices compute in host memory.

use std::cell::RefCell;

use burn::tensor::Device;

thread_local! {
    /// Devices that were asked, and their answers. There are as many as the machine has.
    static ANSWERS: RefCell<Vec<(Device, bool)>> = const { RefCell::new(Vec::new()) };
}

/// Whether tensors of `device` lie in host memory, so that kernels may work on their slices.
///
/// A device is asked once by each thread: on some, the question waits for their queue.
#[must_use]
pub fn is_host(device: &Device) -> bool {
    let known = ANSWERS.with_borrow(|answers| {
        let answer = answers.iter().find(|(asked, _)| asked == device);
        answer.map(|(_, is_host)| *is_host)
    });
    known.unwrap_or_else(|| {
        let is_host = has_no_pool(device);
        ANSWERS.with_borrow_mut(|answers| answers.push((device.clone(), is_host)));
        is_host
    })
}

/// Only devices with a memory of their own report a pool.
fn has_no_pool(device: &Device) -> bool {
    device.memory_pool_usage().is_none()
}
