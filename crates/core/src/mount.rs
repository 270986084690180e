//! Laying a whole adapter over a model, and taking it off again: all or nothing, by name.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use burn::tensor::Device;
use overglaze_patches::{Patch, PatchSet};

use crate::{
    Error, LayerTree, MountReport, MountedPatch,
    fit::{Fitted, fit},
    stack::check_strength,
};

/// Lays `set` over `tree` under `name` at `strength`, and reports every key.
///
/// A key that does not fit is reported and left out. Strength 0 mounts the adapter without effect.
///
/// # Errors
/// [`Error::NameTaken`], [`Error::BadStrength`], or [`Error::NothingApplied`] when not one key fits; the
/// model is then as it was.
///
/// # Panics
/// Never: one set goes in, so one report comes out.
pub fn mount(
    tree: &mut impl LayerTree,
    name: &str,
    set: &PatchSet,
    strength: f32,
) -> Result<MountReport, Error> {
    let mut reports = swap(tree, &[], &[(name, set, strength)])?;
    Ok(reports.pop().expect("one set in, one report out"))
}

/// Takes the adapters `remove` off and lays `add` (name, set, strength) over `tree`, all or nothing:
/// between the two no forward pass can see both or neither.
///
/// # Errors
/// As [`mount`] and [`unmount`]; the model is then as it was.
pub fn swap(
    tree: &mut impl LayerTree,
    remove: &[&str],
    add: &[(&str, &PatchSet, f32)],
) -> Result<Vec<MountReport>, Error> {
    check_names(tree, remove, add)?;
    let fitted = add
        .iter()
        .map(|(name, set, _)| fit(&*tree, name, set))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut places, mut reports) = (Vec::new(), Vec::new());
    for (Fitted { patches, report }, (name, _, strength)) in fitted.into_iter().zip(add) {
        let (name, strength) = (Arc::from(*name), *strength);
        places.push(Placed {
            name,
            patches,
            strength,
        });
        reports.push(report);
    }
    tree.visit_layers_mut(&mut |path, layer| {
        let stack = &mut layer.state_mut().patches;
        for name in remove {
            stack.remove(name);
        }
        for placed in &mut places {
            if let Some(patch) = placed.patches.remove(path) {
                let name = Arc::clone(&placed.name);
                stack.push(MountedPatch::new(name, patch, placed.strength));
            }
        }
    });
    Ok(reports)
}

/// Takes the adapter `name` off; its device copies are freed.
///
/// # Errors
/// [`Error::NotMounted`].
pub fn unmount(tree: &mut impl LayerTree, name: &str) -> Result<(), Error> {
    let mut found = false;
    tree.visit_layers_mut(&mut |_, layer| found |= layer.remove_patch(name));
    if found {
        Ok(())
    } else {
        Err(not_mounted(tree, name))
    }
}

/// Sets the strength of the adapter `name`.
///
/// # Errors
/// [`Error::NotMounted`], [`Error::BadStrength`].
pub fn reweight(tree: &mut impl LayerTree, name: &str, strength: f32) -> Result<(), Error> {
    check_strength(name, strength)?;
    let mut found = false;
    let mut result = Ok(());
    tree.visit_layers_mut(&mut |_, layer| match layer.reweight_patch(name, strength) {
        Ok(is_here) => found |= is_here,
        Err(error) => result = Err(error),
    });
    result?;
    if found {
        Ok(())
    } else {
        Err(not_mounted(tree, name))
    }
}

/// One adapter that is mounted.
#[derive(Clone, Debug)]
pub struct MountedAdapter {
    /// Its name.
    pub name: String,
    /// Its strength.
    pub strength: f32,
    /// Paths of its layers.
    pub layers: Vec<String>,
    /// Where its tensors are.
    pub placement: Placement,
}

/// Where a mounted adapter's tensors are.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Bytes as loaded from the file.
    pub loaded_bytes: usize,
    /// Copies on execution devices: device and bytes. Where the file's tensors are in f32 on that device
    /// already, the copy shares them.
    pub copies: Vec<(Device, usize)>,
}

/// Every mounted adapter, by name.
#[must_use]
pub fn mounted(tree: &impl LayerTree) -> Vec<MountedAdapter> {
    let mut adapters: BTreeMap<String, MountedAdapter> = BTreeMap::new();
    tree.visit_layers(&mut |path, layer| {
        for patch in layer.patches().iter() {
            let adapter =
                adapters
                    .entry(patch.adapter().into())
                    .or_insert_with(|| MountedAdapter {
                        name: patch.adapter().into(),
                        strength: patch.strength(),
                        layers: Vec::new(),
                        placement: Placement::default(),
                    });
            adapter.layers.push(path.into());
            adapter.placement.add(patch);
        }
    });
    adapters.into_values().collect()
}

/// An adapter whose patches are about to be laid over their layers.
struct Placed {
    name: Arc<str>,
    patches: HashMap<String, Arc<dyn Patch>>,
    strength: f32,
}

impl Placement {
    fn add(&mut self, patch: &MountedPatch) {
        self.loaded_bytes += patch.patch().num_bytes();
        for (device, bytes) in patch.copies() {
            match self.copies.iter_mut().find(|(known, _)| *known == device) {
                Some((_, sum)) => *sum += bytes,
                None => self.copies.push((device, bytes)),
            }
        }
    }
}

/// Strengths, names that stand twice or are taken, and names to remove that are not there.
pub(crate) fn check_names(
    tree: &impl LayerTree,
    remove: &[&str],
    add: &[(&str, &PatchSet, f32)],
) -> Result<(), Error> {
    for (index, (name, _, strength)) in add.iter().enumerate() {
        check_strength(name, *strength)?;
        if add[..index].iter().any(|(earlier, ..)| earlier == name) {
            return Err(Error::NameTaken {
                name: (*name).into(),
            });
        }
    }
    let mut taken = None;
    let mut missing: Vec<&str> = remove.to_vec();
    tree.visit_layers(&mut |_, layer| {
        missing.retain(|name| !layer.patches().has(name));
        let clash = add
            .iter()
            .find(|(name, ..)| !remove.contains(name) && layer.patches().has(name));
        taken = taken.or(clash.map(|(name, ..)| *name));
    });
    match (taken, missing.first()) {
        (Some(name), _) => Err(Error::NameTaken { name: name.into() }),
        (None, Some(name)) => Err(not_mounted(tree, name)),
        (None, None) => Ok(()),
    }
}

fn not_mounted(tree: &impl LayerTree, name: &str) -> Error {
    let mounted = mounted(tree)
        .into_iter()
        .map(|adapter| adapter.name)
        .collect();
    Error::NotMounted {
        name: name.into(),
        mounted,
    }
}
