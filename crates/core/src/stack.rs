//! The patches of one layer: residuals against the base, summed, so their order does not matter.

use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{DType, Device, FloatDType, Tensor};
use overglaze_patches::{BaseAccess, BaseLayer, Patch, PatchError};

use crate::Error;

/// A patch in place on one layer.
#[derive(Clone, Debug)]
pub struct MountedPatch {
    adapter: Arc<str>,
    patch: Arc<dyn Patch>,
    strength: f32,
    /// Copies on execution devices, made on first use; shared with clones of the layer.
    copies: Arc<Mutex<Vec<DeviceCopy>>>,
}

#[derive(Clone, Debug)]
struct DeviceCopy {
    device: Device,
    dtype: FloatDType,
    patch: Arc<dyn Patch>,
}

impl MountedPatch {
    pub(crate) fn new(adapter: Arc<str>, patch: Arc<dyn Patch>, strength: f32) -> Self {
        Self {
            adapter,
            patch,
            strength,
            copies: Arc::default(),
        }
    }

    /// Name of the adapter the patch belongs to.
    #[must_use]
    pub fn adapter(&self) -> &str {
        &self.adapter
    }

    /// The patch as it was loaded; using it never changes it.
    #[must_use]
    pub fn patch(&self) -> &Arc<dyn Patch> {
        &self.patch
    }

    /// Factor on the residual.
    #[must_use]
    pub fn strength(&self) -> f32 {
        self.strength
    }

    /// Devices that hold a copy, and the copies' bytes.
    ///
    /// Tensors of the loaded patch that are in f32 on a device already are shared by the copy there, so
    /// that its bytes are those of the loaded patch and no further ones.
    #[must_use]
    pub fn copies(&self) -> Vec<(Device, usize)> {
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies
            .iter()
            .map(|copy| (copy.device.clone(), copy.patch.num_bytes()))
            .collect()
    }

    /// The copy on `device` in `dtype`; made once, then found again.
    fn on(&self, device: &Device, dtype: FloatDType) -> Arc<dyn Patch> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copy) = copies
            .iter()
            .find(|copy| copy.device == *device && copy.dtype == dtype)
        {
            return Arc::clone(&copy.patch);
        }
        let patch = self.patch.to_device(device, dtype);
        copies.push(DeviceCopy {
            device: device.clone(),
            dtype,
            patch: Arc::clone(&patch),
        });
        patch
    }
}

/// Every patch of one layer.
#[derive(Clone, Debug, Default)]
pub struct PatchStack {
    mounted: Vec<MountedPatch>,
}

/// The summed residual of a stack, in f32.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    /// ΔW `[d_output, fan_in]`.
    pub(crate) weight: Option<Tensor<2>>,
    /// Δb `[d_output]`.
    pub(crate) bias: Option<Tensor<1>>,
}

impl PatchStack {
    /// The patches, in mounting order.
    pub fn iter(&self) -> impl Iterator<Item = &MountedPatch> {
        self.mounted.iter()
    }

    /// How many patches there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mounted.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mounted.is_empty()
    }

    /// Whether no patch has an effect: there are none, or every strength is 0.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.mounted.iter().all(|mounted| mounted.strength == 0.0)
    }

    /// Whether the adapter `name` has a patch here.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.mounted.iter().any(|mounted| &*mounted.adapter == name)
    }

    /// Adds `patch` of `adapter` at `strength`; for stacks that go through Burn's own hook. A layer checks
    /// the fit and takes patches through [`PatchedLayer::add_patch`](crate::PatchedLayer::add_patch).
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::BadStrength`].
    pub fn add(
        &mut self,
        adapter: &str,
        patch: Arc<dyn Patch>,
        strength: f32,
    ) -> Result<(), Error> {
        self.check(adapter, strength)?;
        self.push(MountedPatch::new(adapter.into(), patch, strength));
        Ok(())
    }

    /// That a patch of `adapter` at `strength` may be added.
    pub(crate) fn check(&self, adapter: &str, strength: f32) -> Result<(), Error> {
        if self.has(adapter) {
            return Err(Error::NameTaken {
                name: adapter.into(),
            });
        }
        check_strength(adapter, strength)
    }

    pub(crate) fn push(&mut self, mounted: MountedPatch) {
        self.mounted.push(mounted);
    }

    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let before = self.mounted.len();
        self.mounted.retain(|mounted| &*mounted.adapter != name);
        self.mounted.len() < before
    }

    pub(crate) fn reweight(&mut self, name: &str, strength: f32) -> Result<bool, Error> {
        check_strength(name, strength)?;
        let mut found = false;
        for mounted in self
            .mounted
            .iter_mut()
            .filter(|mounted| &*mounted.adapter == name)
        {
            mounted.strength = strength;
            found = true;
        }
        Ok(found)
    }

    pub(crate) fn clear(&mut self) {
        self.mounted.clear();
    }

    /// `input · ΔWᵀ + Δb` of the whole stack, `[rows, fan_in] -> [rows, d_output]`, on the input's device
    /// in f32. `base` yields the dense base weight in f32 and is called at most once, and only when a
    /// patch needs its values.
    pub(crate) fn residual<E: From<PatchError>>(
        &self,
        input: &Tensor<2>,
        shape: [usize; 2],
        base: impl FnOnce() -> Result<Tensor<2>, E>,
    ) -> Result<Option<Tensor<2>>, E> {
        let (device, mut output, mut rest) = (input.device(), None, Vec::new());
        for (patch, strength) in self.active(&device) {
            match patch.sidecar_linear(input.clone()) {
                Some(term) => {
                    accumulate(&mut output, scaled(term, strength));
                    if let Some(bias) = patch.delta_bias() {
                        accumulate(&mut output, scaled(bias, strength).unsqueeze());
                    }
                }
                None => rest.push((patch, strength)),
            }
        }
        let delta = sum(&rest, shape, base)?;
        if let Some(weight) = delta.weight {
            accumulate(&mut output, input.clone().matmul(weight.transpose()));
        }
        if let Some(bias) = delta.bias {
            accumulate(&mut output, bias.unsqueeze());
        }
        Ok(output)
    }

    /// The whole stack's residual on the parameters themselves, on `device` in f32; `base` as above.
    pub(crate) fn delta<E: From<PatchError>>(
        &self,
        device: &Device,
        shape: [usize; 2],
        base: impl FnOnce() -> Result<Tensor<2>, E>,
    ) -> Result<Delta, E> {
        let patches: Vec<_> = self.active(device).collect();
        sum(&patches, shape, base)
    }

    /// Δb `[d_output]` of the whole stack, on `device` in f32.
    pub(crate) fn delta_bias(&self, device: &Device) -> Option<Tensor<1>> {
        let mut sum = None;
        for (patch, strength) in self.active(device) {
            if let Some(bias) = patch.delta_bias() {
                accumulate(&mut sum, scaled(bias, strength));
            }
        }
        sum
    }

    /// Whether any patch changes the bias.
    pub(crate) fn has_bias(&self) -> bool {
        self.mounted
            .iter()
            .any(|mounted| mounted.patch.delta_bias().is_some())
    }

    /// Patches whose strength is not zero, as copies on `device`.
    fn active(&self, device: &Device) -> impl Iterator<Item = (Arc<dyn Patch>, f32)> {
        self.mounted
            .iter()
            .filter(|mounted| mounted.strength != 0.0)
            .map(|mounted| (mounted.on(device, FloatDType::F32), mounted.strength))
    }
}

/// That a strength is a number.
pub(crate) fn check_strength(name: &str, strength: f32) -> Result<(), Error> {
    if strength.is_finite() {
        return Ok(());
    }
    Err(Error::BadStrength {
        name: name.into(),
        strength,
    })
}

fn sum<E: From<PatchError>>(
    patches: &[(Arc<dyn Patch>, f32)],
    shape: [usize; 2],
    base: impl FnOnce() -> Result<Tensor<2>, E>,
) -> Result<Delta, E> {
    let needs_values =
        |(patch, _): &(Arc<dyn Patch>, f32)| patch.base_access() == BaseAccess::Weight;
    let values = if patches.iter().any(needs_values) {
        Some(base()?)
    } else {
        None
    };
    let layer = BaseLayer {
        shape,
        weight: values.as_ref(),
    };
    let mut delta = Delta::default();
    for (patch, strength) in patches {
        if let Some(weight) = patch.delta_weight(&layer)? {
            accumulate(&mut delta.weight, scaled(weight, *strength));
        }
        if let Some(bias) = patch.delta_bias() {
            accumulate(&mut delta.bias, scaled(bias, *strength));
        }
    }
    Ok(delta)
}

fn scaled<const D: usize>(term: Tensor<D>, strength: f32) -> Tensor<D> {
    debug_assert_eq!(term.dtype(), DType::F32, "device copies compute in f32");
    if strength == 1.0 {
        term
    } else {
        term.mul_scalar(strength)
    }
}

fn accumulate<const D: usize>(sum: &mut Option<Tensor<D>>, term: Tensor<D>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + term,
        None => term,
    });
}
