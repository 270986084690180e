//! The registry of patch kinds: order-free detection by the exact key set.

use std::sync::Arc;

use burn::tensor::Device;

use crate::{Patch, PatchError, TensorGroup, dialects::family};

/// Builds a patch from exactly the keys of its kind.
pub type LoadPatch = fn(TensorGroup, &Device) -> Result<Arc<dyn Patch>, PatchError>;

/// A registered kind of patch; submit one with [`register_patch!`](crate::register_patch).
///
/// Built with [`new`](Self::new) and the `with_` methods, in a constant: what a kind does not name is empty.
#[derive(Debug)]
#[non_exhaustive]
pub struct PatchKind {
    /// Name, as reports and `overglaze registry` show it.
    pub name: &'static str,
    /// Key sets that identify the kind; one of them must be fully present.
    pub signatures: &'static [&'static [&'static str]],
    /// Further keys the kind understands.
    pub optional: &'static [&'static str],
    /// Other spellings of the kind's keys in files, and the key each stands for. A `*` stands for the
    /// adapter's name that PEFT writes between, one piece without dots (`lora_A.*.weight`); it is the same
    /// in a whole file.
    pub aliases: &'static [(&'static str, &'static str)],
    /// The key whose rows are the rank, in kinds whose scale is `alpha / rank`. Such a kind gets the
    /// `alpha` of a PEFT configuration where the file has none.
    pub rank_key: Option<&'static str>,
    /// Builds the patch from the keys; tensors are placed on the device.
    pub load: LoadPatch,
}
inventory::collect!(PatchKind);

/// Registers a [`PatchKind`] from any crate that is linked into the binary.
#[macro_export]
macro_rules! register_patch {
    ($kind:expr) => {
        $crate::inventory::submit! { $kind }
    };
}

impl PatchKind {
    /// A kind that is identified by one of `signatures` and built by `load`.
    #[must_use]
    pub const fn new(
        name: &'static str,
        signatures: &'static [&'static [&'static str]],
        load: LoadPatch,
    ) -> Self {
        Self {
            name,
            signatures,
            optional: &[],
            aliases: &[],
            rank_key: None,
            load,
        }
    }

    /// With further keys the kind understands: see [`optional`](Self::optional).
    #[must_use]
    pub const fn with_optional(self, optional: &'static [&'static str]) -> Self {
        Self { optional, ..self }
    }

    /// With other spellings of its keys: see [`aliases`](Self::aliases).
    #[must_use]
    pub const fn with_aliases(self, aliases: &'static [(&'static str, &'static str)]) -> Self {
        Self { aliases, ..self }
    }

    /// With the key whose rows are the rank: see [`rank_key`](Self::rank_key).
    #[must_use]
    pub const fn with_rank_key(self, key: &'static str) -> Self {
        Self {
            rank_key: Some(key),
            ..self
        }
    }

    /// Every key the kind understands.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.signatures
            .iter()
            .copied()
            .flatten()
            .chain(self.optional)
            .copied()
    }

    /// Whether the keys of `group` are exactly those of this kind.
    #[must_use]
    pub fn accepts(&self, group: &TensorGroup) -> bool {
        self.signatures.iter().any(|signature| {
            signature.iter().all(|key| group.tensors.contains_key(*key))
                && group.tensors.keys().all(|key| {
                    signature.contains(&key.as_str()) || self.optional.contains(&key.as_str())
                })
        })
    }

    /// Rank of the factors in `group`: rows of the [`rank_key`](Self::rank_key).
    #[must_use]
    pub fn rank(&self, group: &TensorGroup) -> Option<usize> {
        let factor = group.tensors.get(self.rank_key?)?;
        factor.shape().first().copied()
    }

    /// The signature keys that `group` lacks, when all its keys are this kind's and one of them is
    /// a signature's; where several signatures fit, the fewest.
    fn missing_keys(&self, group: &TensorGroup) -> Option<Vec<String>> {
        let has = |key: &&str| group.tensors.contains_key(*key);
        if !group
            .tensors
            .keys()
            .all(|key| self.keys().any(|known| known == key))
        {
            return None;
        }
        self.signatures
            .iter()
            .filter(|signature| signature.iter().any(has))
            .map(|signature| signature.iter().filter(|key| !has(key)))
            .map(|missing| missing.map(|key| String::from(*key)).collect::<Vec<_>>())
            .min_by_key(Vec::len)
    }
}

/// Every registered kind, sorted by name.
#[must_use]
pub fn kinds() -> Vec<&'static PatchKind> {
    let mut kinds: Vec<_> = inventory::iter::<PatchKind>.into_iter().collect();
    kinds.sort_unstable_by_key(|kind| kind.name);
    kinds
}

/// Builds the patch whose kind accepts exactly the keys of `group`, in whatever order kinds registered.
///
/// # Errors
/// [`PatchError::Unrecognized`], [`PatchError::Incomplete`] or [`PatchError::Ambiguous`], all naming
/// the keys, or what the kind's own `load` finds wrong.
pub fn load(group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let known = kinds();
    let accepting: Vec<_> = known.iter().filter(|kind| kind.accepts(&group)).collect();
    match accepting.as_slice() {
        [kind] => (kind.load)(group, device),
        [] => Err(unaccepted(group, &known)),
        several => Err(PatchError::Ambiguous {
            target: group.target,
            keys: group.tensors.into_keys().collect(),
            kinds: several.iter().map(|kind| kind.name).collect(),
        }),
    }
}

fn unaccepted(group: TensorGroup, known: &[&'static PatchKind]) -> PatchError {
    let mut near = known
        .iter()
        .filter_map(|kind| Some((kind.name, kind.missing_keys(&group)?)));
    let nearest = near.next().filter(|_| near.next().is_none());
    let TensorGroup { target, tensors } = group;
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

/// The families of those `keys` that no kind knows, by name.
fn unknown_families(keys: &[String], kinds: &[&'static PatchKind]) -> Vec<&'static str> {
    let is_known = |key: &str| {
        kinds
            .iter()
            .any(|kind| kind.keys().any(|known| known == key))
    };
    let unknown = keys.iter().filter(|key| !is_known(key));
    let mut families: Vec<_> = unknown.filter_map(|key| family(key)).collect();
    families.sort_unstable();
    families.dedup();
    families
}
