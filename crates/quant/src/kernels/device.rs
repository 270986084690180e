//! Which devices compute in host memory.

use burn::tensor::Device;

/// Whether tensors of `device` lie in host memory, so that kernels may work on their slices.
///
/// Only devices with a memory of their own report a pool.
#[must_use]
pub fn is_host(device: &Device) -> bool {
    device.memory_pool_usage().is_none()
}
