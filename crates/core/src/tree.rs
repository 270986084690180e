//! A model whose layers can be patched, seen from outside.

use crate::{NameTable, PatchedLayer};

/// A model with named patchable layers.
///
/// Layer paths are those of [`names`](Self::names), which also knows the aliases of the layers.
pub trait LayerTree {
    /// Visits every layer with its path.
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer));

    /// Visits every layer with its path, to change its patches.
    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer));

    /// The model's own layer names and their aliases.
    fn names(&self) -> &NameTable;
}
