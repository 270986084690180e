//! A model of one layer, of any type.

use overglaze_core::{LayerTree, NameTable, PatchedLayer};

/// A layer called `layer`.
pub(crate) struct Single<L> {
    pub(crate) layer: L,
    names: NameTable,
}

impl<L: PatchedLayer> Single<L> {
    pub(crate) fn new(layer: L) -> Self {
        let mut names = NameTable::default();
        let added = names.add_layer(LAYER, layer.weight_shape()[0]);
        added.expect("it is the only one");
        Self { layer, names }
    }
}

impl<L: PatchedLayer> LayerTree for Single<L> {
    fn visit_layers(&self, visitor: &mut dyn FnMut(&str, &dyn PatchedLayer)) {
        visitor(LAYER, &self.layer);
    }

    fn visit_layers_mut(&mut self, visitor: &mut dyn FnMut(&str, &mut dyn PatchedLayer)) {
        visitor(LAYER, &mut self.layer);
    }

    fn names(&self) -> &NameTable {
        &self.names
    }
}

pub(crate) const LAYER: &str = "layer";
