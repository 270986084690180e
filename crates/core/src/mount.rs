//! Laying a whole adapter over a model, and taking it off again: all or nothing, by name.

use std::{collections::HashMap, sync::Arc};

use overglaze_patches::{Patch, PatchSet};

use crate::{
    Error, LayerTree, MountReport, MountedPatch, PatchStack, PatchedLayer, Placement, Strengths,
    change::Change,
    fit::{Fitted, fit},
    mounted,
    strengths::ResolvedStrengths,
};

/// An adapter that is to be mounted, and how.
#[derive(Clone, Debug)]
pub struct Mounting<'a> {
    pub(crate) name: &'a str,
    pub(crate) set: &'a PatchSet,
    pub(crate) strengths: Strengths,
    placement: Placement,
}

impl<'a> Mounting<'a> {
    /// Lays `set` by sidecar over its layers, under `name`.
    #[must_use]
    pub fn new(name: &'a str, set: &'a PatchSet, strengths: impl Into<Strengths>) -> Self {
        Self {
            name,
            set,
            strengths: strengths.into(),
            placement: Placement::Sidecar,
        }
    }

    /// Lays it as `placement` says.
    #[must_use]
    pub fn with_placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }
}

impl<'a> From<(&'a str, &'a PatchSet, f32)> for Mounting<'a> {
    /// By sidecar, under a name, at one strength.
    fn from((name, set, strength): (&'a str, &'a PatchSet, f32)) -> Self {
        Self::new(name, set, strength)
    }
}

/// Lays `set` over `tree` by sidecar under `name` at `strengths`, and reports every key.
///
/// A key that does not fit is reported and left out. Strength 0 mounts the adapter without effect.
/// [`swap`] takes an adapter with another [`Placement`].
///
/// # Errors
/// [`Error::NameTaken`], [`Error::BadStrength`], [`Error::PatternUnmatched`], [`Error::TwoReplacements`], or
/// [`Error::NothingApplied`] when not one key fits; the model is then as it was.
///
/// # Panics
/// Never: one set goes in, so one report comes out.
pub fn mount(
    tree: &mut impl LayerTree,
    name: &str,
    set: &PatchSet,
    strengths: impl Into<Strengths>,
) -> Result<MountReport, Error> {
    let mut reports = swap(tree, &[], &[Mounting::new(name, set, strengths)])?;
    Ok(reports.pop().expect("one set in, one report out"))
}

/// Takes the adapters `remove` off and lays `add` over `tree`, all or nothing: between the two no forward pass
/// can see both or neither. An adapter is a [`Mounting`], or `(name, set, strength)` for one by sidecar.
///
/// # Errors
/// As [`mount`] and [`unmount`], or [`Error::MergeStreamed`] where one that goes in directly meets a streamed
/// layer; the model is then as it was.
pub fn swap<'a, M>(
    tree: &mut impl LayerTree,
    remove: &[&str],
    add: &[M],
) -> Result<Vec<MountReport>, Error>
where
    M: Clone + Into<Mounting<'a>>,
{
    let add: Vec<Mounting<'_>> = add.iter().cloned().map(Into::into).collect();
    check_names(tree, remove, &add)?;
    let (mut places, mut reports) = (Vec::new(), Vec::new());
    for mounting in &add {
        let strengths = mounting.strengths.resolve(&*tree, mounting.name)?;
        let Fitted { patches, report } = fit(&*tree, mounting.name, mounting.set)?;
        places.push(Placed {
            name: mounting.name.into(),
            patches,
            strengths,
            placement: mounting.placement,
        });
        reports.push(report);
    }
    let change = Change::plan(&*tree, |path, layer, stack| {
        let mut has_changed = false;
        for name in remove {
            has_changed |= stack.remove(name);
        }
        for placed in &places {
            has_changed |= placed.push(path, layer, stack)?;
        }
        Ok(has_changed)
    })?;
    change.put(tree);
    Ok(reports)
}

/// Takes the adapter `name` off; its device copies are freed.
///
/// # Errors
/// [`Error::NotMounted`]; or, where other direct patches stay, what they find wrong with the base. The model is
/// then as it was.
pub fn unmount(tree: &mut impl LayerTree, name: &str) -> Result<(), Error> {
    let change = Change::plan(&*tree, |_, _, stack| Ok(stack.remove(name)))?;
    if change.is_empty() {
        return Err(not_mounted(tree, name));
    }
    change.put(tree);
    Ok(())
}

/// Sets the strengths of the adapter `name`, as it is placed: nothing is mounted anew.
///
/// # Errors
/// [`Error::NotMounted`], [`Error::BadStrength`], [`Error::PatternUnmatched`]; the model is then as it was.
pub fn reweight(
    tree: &mut impl LayerTree,
    name: &str,
    strengths: impl Into<Strengths>,
) -> Result<(), Error> {
    let strengths = strengths.into().resolve(&*tree, name)?;
    let change = Change::plan(&*tree, |path, _, stack| {
        stack.reweight(name, strengths.at(path))
    })?;
    if change.is_empty() {
        return Err(not_mounted(tree, name));
    }
    change.put(tree);
    Ok(())
}

/// An adapter whose patches are about to be laid over their layers.
struct Placed {
    name: Arc<str>,
    patches: HashMap<String, Arc<dyn Patch>>,
    strengths: ResolvedStrengths,
    placement: Placement,
}

impl Placed {
    /// Puts the layer's patch on `stack`, the layer's own to be; whether there is one.
    fn push(
        &self,
        path: &str,
        layer: &dyn PatchedLayer,
        stack: &mut PatchStack,
    ) -> Result<bool, Error> {
        let Some(patch) = self.patches.get(path) else {
            return Ok(false);
        };
        stack.check_replaced(path, &self.name, &**patch)?;
        let (name, patch) = (Arc::clone(&self.name), Arc::clone(patch));
        let mounted = MountedPatch::new(name, patch, self.strengths.at(path));
        let is_direct = self.placement.is_direct(path, layer, stack)?;
        stack.push(if is_direct {
            mounted.into_direct()
        } else {
            mounted
        });
        Ok(true)
    }
}

/// Names that stand twice or are taken, and names to remove that are not there.
fn check_names(tree: &impl LayerTree, remove: &[&str], add: &[Mounting<'_>]) -> Result<(), Error> {
    for (index, Mounting { name, .. }) in add.iter().enumerate() {
        if add[..index].iter().any(|earlier| earlier.name == *name) {
            return Err(Error::NameTaken {
                name: (*name).into(),
            });
        }
    }
    let mut taken = None;
    let mut missing: Vec<&str> = remove.to_vec();
    tree.visit_layers(&mut |_, layer| {
        missing.retain(|name| !layer.patches().has(name));
        let clash = add.iter().find(|mounting| {
            !remove.contains(&mounting.name) && layer.patches().has(mounting.name)
        });
        taken = taken.or(clash.map(|mounting| mounting.name));
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
