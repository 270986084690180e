//! The patches of one layer: residuals against the base, summed, so their order does not matter.

use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, FloatDType};
use overglaze_patches::Patch;

use crate::{
    Error,
    residual::{Cache, Summand},
};

/// A patch in place on one layer.
#[derive(Clone, Debug)]
pub struct MountedPatch {
    adapter: Arc<str>,
    patch: Arc<dyn Patch>,
    strength: f32,
    /// Whether it is part of the layer's merged weight; else it is a sidecar.
    is_direct: bool,
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
            is_direct: false,
            copies: Arc::default(),
        }
    }

    /// The same as a part of the layer's merged weight.
    pub(crate) fn into_direct(mut self) -> Self {
        self.is_direct = true;
        self
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

    /// Whether the patch is part of the layer's merged weight; else it is a sidecar.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.is_direct
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
    /// What forward passes use; dropped by every change.
    pub(crate) cache: Cache,
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

    /// Whether no sidecar has an effect: there are none, or every strength is 0. Direct patches are in the
    /// layer's merged weight already.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sidecars().next().is_none()
    }

    /// Whether the adapter `name` has a patch here.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.mounted.iter().any(|mounted| &*mounted.adapter == name)
    }

    /// Adds `patch` of `adapter` at `strength` by sidecar; that it fits the layer has been checked.
    pub(crate) fn add(
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
        self.cache.clear();
        self.mounted.push(mounted);
    }

    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let before = self.mounted.len();
        self.mounted.retain(|mounted| &*mounted.adapter != name);
        let has_changed = self.mounted.len() < before;
        if has_changed {
            self.cache.clear();
        }
        has_changed
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
        if found {
            self.cache.clear();
        }
        Ok(found)
    }

    /// Takes the direct patches off; whether there were any.
    pub(crate) fn remove_direct(&mut self) -> bool {
        let before = self.mounted.len();
        self.mounted.retain(|mounted| !mounted.is_direct);
        self.mounted.len() < before
    }

    /// Whether the direct patches of `other` are the same ones at the same strengths.
    pub(crate) fn has_same_direct(&self, other: &Self) -> bool {
        let direct = |stack: &Self| -> Vec<_> {
            let direct = stack.in_order().filter(|mounted| mounted.is_direct);
            direct.cloned().collect()
        };
        let (ours, theirs) = (direct(self), direct(other));
        let are_same = |(a, b): (&MountedPatch, &MountedPatch)| {
            Arc::ptr_eq(&a.patch, &b.patch) && a.strength.to_bits() == b.strength.to_bits()
        };
        ours.len() == theirs.len() && ours.iter().zip(&theirs).all(are_same)
    }

    /// That `patch` of `adapter` replaces no parameter of the layer `path` that another one replaces.
    pub(crate) fn check_replaced(
        &self,
        path: &str,
        adapter: &str,
        patch: &dyn Patch,
    ) -> Result<(), Error> {
        let added = patch.replaces();
        for mounted in &self.mounted {
            let replaced = mounted.patch.replaces();
            let parameter = match (replaced.weight && added.weight, replaced.bias && added.bias) {
                (true, _) => "weight",
                (false, true) => "bias",
                (false, false) => continue,
            };
            return Err(Error::TwoReplacements {
                layer: path.into(),
                parameter,
                first: mounted.adapter().into(),
                second: adapter.into(),
            });
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.mounted.clear();
        self.cache.clear();
    }

    /// The patches in the order of the adapters' names: sums do not depend on the order of mounting.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &MountedPatch> {
        let mut mounted: Vec<_> = self.mounted.iter().collect();
        mounted.sort_by(|a, b| a.adapter.cmp(&b.adapter));
        mounted.into_iter()
    }

    /// Sidecars whose strength is not zero.
    pub(crate) fn sidecars(&self) -> impl Iterator<Item = &MountedPatch> {
        let sidecars = self.mounted.iter().filter(|mounted| !mounted.is_direct);
        sidecars.filter(|mounted| mounted.strength != 0.0)
    }

    /// The sidecars with an effect, as copies on `device` that are kept.
    pub(crate) fn sidecar_summands(&self, device: &Device) -> Vec<Summand> {
        self.summands(
            |mounted| !mounted.is_direct,
            |mounted| mounted.on(device, FloatDType::F32),
        )
    }

    /// The direct patches with an effect, as copies on `device` that nothing keeps.
    pub(crate) fn direct_summands(&self, device: &Device) -> Vec<Summand> {
        self.summands(
            |mounted| mounted.is_direct,
            |mounted| mounted.patch.to_device(device, FloatDType::F32),
        )
    }

    /// The patches that are `wanted` and whose strength is not zero, in the order of the adapters' names.
    fn summands(
        &self,
        wanted: impl Fn(&MountedPatch) -> bool,
        copy: impl Fn(&MountedPatch) -> Arc<dyn Patch>,
    ) -> Vec<Summand> {
        let with_effect = |mounted: &&MountedPatch| mounted.strength != 0.0 && wanted(mounted);
        let summand = |mounted: &MountedPatch| {
            let patch = copy(mounted);
            match patch.at_strength(mounted.strength) {
                Some(patch) => (patch, 1.0),
                None => (patch, mounted.strength),
            }
        };
        self.in_order().filter(with_effect).map(summand).collect()
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
