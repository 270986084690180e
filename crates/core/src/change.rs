//! A change of many layers' patches that happens as a whole or not at all: planned first, then put in place.

use std::{collections::HashMap, sync::Arc};

use crate::{Error, LayerState, LayerTree, LayerWeights, PatchStack, PatchedLayer, direct};

/// What the layers of a tree are about to have.
#[derive(Debug, Default)]
pub(crate) struct Change {
    layers: HashMap<String, LayerChange>,
}

/// What one layer is about to have.
#[derive(Debug)]
pub(crate) struct LayerChange {
    stack: PatchStack,
    merged: Merged,
}

#[derive(Debug)]
enum Merged {
    Unchanged,
    Replaced(Option<Arc<LayerWeights>>),
}

impl Change {
    /// Plans what `edit` makes of each layer's patches; it answers whether it changed them. Nothing is in place
    /// before [`put`](Self::put).
    pub(crate) fn plan(
        tree: &impl LayerTree,
        mut edit: impl FnMut(&str, &dyn PatchedLayer, &mut PatchStack) -> Result<bool, Error>,
    ) -> Result<Self, Error> {
        let (mut change, mut result) = (Self::default(), Ok(()));
        tree.visit_layers(&mut |path, layer| {
            if result.is_err() {
                return;
            }
            let mut stack = layer.patches().clone();
            let planned = edit(path, layer, &mut stack).and_then(|has_changed| {
                if has_changed {
                    let planned = LayerChange::to(layer, stack)?;
                    change.layers.insert(path.to_owned(), planned);
                }
                Ok(())
            });
            result = planned;
        });
        result.map(|()| change)
    }

    /// Whether no layer changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Puts what was planned in place.
    pub(crate) fn put(mut self, tree: &mut impl LayerTree) {
        tree.visit_layers_mut(&mut |path, layer| {
            if let Some(planned) = self.layers.remove(path) {
                planned.put(layer.state_mut());
            }
        });
    }
}

impl LayerChange {
    /// The change of `layer`'s patches to `stack`.
    pub(crate) fn to(
        layer: &(impl PatchedLayer + ?Sized),
        stack: PatchStack,
    ) -> Result<Self, Error> {
        let merged = match layer.patches().has_same_direct(&stack) {
            true => Merged::Unchanged,
            false => Merged::Replaced(direct::merged(layer, &stack)?),
        };
        Ok(Self { stack, merged })
    }

    pub(crate) fn put(self, state: &mut LayerState) {
        state.patches = self.stack;
        if let Merged::Replaced(merged) = self.merged {
            let written = merged.as_deref().map_or(0, direct::num_bytes);
            state.traffic.count_write(written);
            state.merged = merged;
        }
    }
}
