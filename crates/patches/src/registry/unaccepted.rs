//! Why no kind accepts the keys of a layer.

use super::{Build, PatchKind};
use crate::{
    PatchError, TensorGroup,
    dialects::{Family, family},
};

/// Why none of the `known` kinds accepts `group`: the nearest of them tells, and else the family of its keys.
pub(super) fn unaccepted(group: TensorGroup, known: &[&'static PatchKind]) -> PatchError {
    if let Some(error) = other_dimensions(&group, known).or_else(|| wrapper_alone(&group, known)) {
        return error;
    }
    let mut near = known
        .iter()
        .filter_map(|kind| Some((kind.name, kind.missing_keys(&group)?)));
    let nearest = near.next().filter(|_| near.next().is_none());
    let TensorGroup {
        target, tensors, ..
    } = group;
    let keys: Vec<_> = tensors.into_keys().collect();
    match nearest {
        Some((kind, missing)) => PatchError::Incomplete {
            target,
            keys,
            missing,
            kind,
        },
        None => PatchError::Unrecognized {
            families: unknown_families(&keys, known),
            known: known.iter().map(|kind| kind.name).collect(),
            target,
            keys,
        },
    }
}

/// That kinds have exactly the keys of `group`, with other dimensions.
fn other_dimensions(group: &TensorGroup, known: &[&'static PatchKind]) -> Option<PatchError> {
    let by_keys = known.iter().filter(|kind| kind.accepts_keys(group));
    let stated = by_keys.flat_map(|kind| {
        let dimensions = kind.dimensions.iter();
        dimensions.map(|(key, dimensions)| (*key, *dimensions, kind.name))
    });
    let unlike = stated
        .filter(|(key, dimensions, _)| group.has(key) && group.dims(key).len() != *dimensions);
    let unlike: Vec<_> = unlike.collect();
    let (key, ..) = unlike.first()?;
    let of_key = unlike.iter().filter(|(other, ..)| other == key);
    let expected = of_key.map(|(_, dimensions, kind)| format!("{dimensions} dimensions ({kind})"));
    Some(PatchError::WrongRank {
        target: group.target.clone(),
        key: (*key).into(),
        found: group.dims(key),
        expected: expected.collect::<Vec<_>>().join(" or "),
    })
}

/// That the keys are a wrapper's, beside which another kind's are missing.
fn wrapper_alone(group: &TensorGroup, known: &[&'static PatchKind]) -> Option<PatchError> {
    let mut wrappers = known
        .iter()
        .filter(|kind| matches!(kind.build, Build::Wrap(_)));
    let wrapper = wrappers.find(|kind| {
        let mut signatures = kind.signatures.iter();
        let is_own = |key: &String| kind.keys().any(|own| own == key);
        signatures.any(|signature| signature.iter().all(|key| group.has(key)))
            && group.tensors.keys().all(is_own)
    })?;
    let keys: Vec<_> = group.tensors.keys().collect();
    Some(group.inconsistent(format!(
        "the factors that a {} patch changes are missing beside {keys:?}; is the file complete?",
        wrapper.name
    )))
}

/// The families of those `keys` that no kind knows, by name.
fn unknown_families(keys: &[String], kinds: &[&'static PatchKind]) -> Vec<&'static Family> {
    let is_known = |key: &str| {
        kinds
            .iter()
            .any(|kind| kind.keys().any(|known| known == key))
    };
    let unknown = keys.iter().filter(|key| !is_known(key));
    let mut families: Vec<_> = unknown.filter_map(|key| family(key)).collect();
    families.sort_unstable_by_key(|family| family.label);
    families.dedup();
    families
}
