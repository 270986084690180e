//! Patchable layers under the names of their checkpoint, and how to visit all of a part.

use overglaze_core::PatchedLayer;

/// A layer and its path in the checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Named<L> {
    pub(crate) path: String,
    pub(crate) layer: L,
}

/// Called with the path and the layer.
pub(crate) type Visitor<'a> = dyn FnMut(&str, &dyn PatchedLayer) + 'a;

/// The same, to change the layer.
pub(crate) type VisitorMut<'a> = dyn FnMut(&str, &mut dyn PatchedLayer) + 'a;

/// A part of the network that holds patchable layers.
pub(crate) trait Layers {
    /// Visits them in execution order.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// The same, to change them.
    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>);
}

impl<L: PatchedLayer> Layers for Named<L> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor(&self.path, &self.layer);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        visitor(&self.path, &mut self.layer);
    }
}

impl<T: Layers> Layers for Vec<T> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().for_each(|part| part.visit(visitor));
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.iter_mut().for_each(|part| part.visit_mut(visitor));
    }
}

impl<T: Layers> Layers for Option<T> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().for_each(|part| part.visit(visitor));
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.iter_mut().for_each(|part| part.visit_mut(visitor));
    }
}

/// Implements [`Layers`] for a struct by visiting the named fields in order.
macro_rules! visit_fields {
    ($part:ty { $($field:ident),+ $(,)? }) => {
        impl $crate::flux::layers::Layers for $part {
            fn visit(&self, visitor: &mut $crate::flux::layers::Visitor<'_>) {
                $($crate::flux::layers::Layers::visit(&self.$field, visitor);)+
            }

            fn visit_mut(&mut self, visitor: &mut $crate::flux::layers::VisitorMut<'_>) {
                $($crate::flux::layers::Layers::visit_mut(&mut self.$field, visitor);)+
            }
        }
    };
}

pub(crate) use visit_fields;
