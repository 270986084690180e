//! The table of kinds is whole: no registered kind is missing.

use std::collections::BTreeSet;

use burn::tensor::DType;
use overglaze_patches::{Build, LayerShape, PatchKind, TensorGroup, registry};

use super::{kinds::KINDS, layers::layers};

/// Whether a patch of `kind` is made of the keys of `group`.
fn makes(kind: &PatchKind, group: &TensorGroup) -> bool {
    match kind.build {
        Build::Load(_) => kind.accepts(group),
        Build::Wrap(_) => kind.signatures.iter().any(|signature| {
            let is_there = signature.iter().all(|key| group.has(key));
            is_there && !registry::kinds().iter().any(|kind| kind.accepts(group))
        }),
    }
}

#[test]
fn no_registered_kind_is_missing_from_the_table() {
    let shape = LayerShape::linear(32, 64);
    let groups = KINDS
        .iter()
        .filter_map(|kind| kind.group(&shape, DType::F32));
    let groups: Vec<_> = groups.collect();
    let missing: Vec<_> = registry::kinds()
        .into_iter()
        .filter(|kind| !groups.iter().any(|group| makes(kind, group)))
        .map(|kind| kind.name)
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
    assert!(registry::kinds().len() > 10, "the kinds are linked in");
}

#[test]
fn every_kind_fits_a_layer_and_every_layer_takes_a_kind_of_its_own() {
    let names: BTreeSet<_> = KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), KINDS.len(), "names are distinct");
    for kind in KINDS {
        let fits = layers().iter().any(|layer| (kind.fits)(&layer.shape));
        assert!(fits, "{}", kind.name);
    }
}
