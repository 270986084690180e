//! Which refused layers of an adapter have the same cause.
//!
//! Messages name their layer, so that no two are alike; what tells causes apart is the kind of the error.

use std::{
    collections::BTreeMap,
    mem::{Discriminant, discriminant},
};

use overglaze_patches::{PatchError, PatchSet};

/// Why a layer is refused, as far as it can be compared.
pub(super) type Cause = Discriminant<PatchError>;

/// The cause of every refused layer.
pub(super) fn causes(set: &PatchSet) -> BTreeMap<&str, Cause> {
    let refused = set.refused.iter();
    refused
        .map(|group| (group.target.as_str(), discriminant(&group.error)))
        .collect()
}
