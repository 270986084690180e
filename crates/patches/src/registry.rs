//! The registry of patch kinds: order-free detection by the exact key set.

mod unaccepted;

use std::{cmp::Reverse, sync::Arc};

use burn::tensor::{Device, TensorData};

use crate::{Patch, PatchError, TensorGroup};
use unaccepted::unaccepted;

/// Builds a patch from exactly the keys of its kind.
pub type LoadPatch = fn(TensorGroup, &Device) -> Result<Arc<dyn Patch>, PatchError>;

/// Builds a patch around another from exactly the keys of its own kind.
pub type WrapPatch = fn(Arc<dyn Patch>, TensorGroup, &Device) -> Result<Arc<dyn Patch>, PatchError>;

/// How a kind builds its patches.
#[derive(Clone, Copy, Debug)]
pub enum Build {
    /// From its keys alone.
    Load(LoadPatch),
    /// From its keys, around the patch that the other keys of the layer make.
    Wrap(WrapPatch),
}

/// What `overglaze registry` tells of a kind; plain text.
#[derive(Clone, Copy, Debug, Default)]
pub struct KindDocs {
    /// The residual, in the letters of the files' keys.
    pub formula: &'static str,
    /// Layers it has a meaning on.
    pub layers: &'static str,
    /// How the residual depends on the strength.
    pub strength: &'static str,
    /// The paper and equation, or the program and file, that the formula is from.
    pub source: &'static str,
}

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
    /// Key sets, beside the optional keys, that `load` takes only to refuse them with a reason of its own.
    pub refused: &'static [&'static [&'static str]],
    /// Further keys the kind understands.
    pub optional: &'static [&'static str],
    /// Other spellings of the kind's keys in files, and the key each stands for. A `*` stands for the
    /// adapter's name that PEFT writes between, one piece without dots (`lora_A.*.weight`); it is the same
    /// in a whole file.
    pub aliases: &'static [(&'static str, &'static str)],
    /// The key whose rows are the rank, in kinds whose scale is `alpha / rank`. Such a kind gets the
    /// `alpha` of a PEFT configuration where the file has none.
    pub rank_key: Option<&'static str>,
    /// Dimensions that a key has in this kind, where another kind has the same keys with others.
    pub dimensions: &'static [(&'static str, usize)],
    /// The `peft_type` of the configurations that PEFT writes beside its keys.
    pub peft_types: &'static [&'static str],
    /// Builds the patch from the keys; tensors are placed on the device.
    pub build: Build,
    /// What it is, for people.
    pub docs: KindDocs,
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
        Self::with_build(name, signatures, Build::Load(load))
    }

    /// A kind whose keys, one of `signatures`, stand beside those of another kind, around whose patch `wrap`
    /// lays its own.
    #[must_use]
    pub const fn wrapper(
        name: &'static str,
        signatures: &'static [&'static [&'static str]],
        wrap: WrapPatch,
    ) -> Self {
        Self::with_build(name, signatures, Build::Wrap(wrap))
    }

    const fn with_build(
        name: &'static str,
        signatures: &'static [&'static [&'static str]],
        build: Build,
    ) -> Self {
        Self {
            name,
            signatures,
            refused: &[],
            optional: &[],
            aliases: &[],
            rank_key: None,
            dimensions: &[],
            peft_types: &[],
            build,
            docs: KindDocs {
                formula: "",
                layers: "",
                strength: "",
                source: "",
            },
        }
    }

    /// With what `overglaze registry` tells of it.
    #[must_use]
    pub const fn with_docs(self, docs: KindDocs) -> Self {
        Self { docs, ..self }
    }

    /// With further keys the kind understands: see [`optional`](Self::optional).
    #[must_use]
    pub const fn with_optional(self, optional: &'static [&'static str]) -> Self {
        Self { optional, ..self }
    }

    /// With key sets that it refuses: see [`refused`](Self::refused).
    #[must_use]
    pub const fn with_refused(self, refused: &'static [&'static [&'static str]]) -> Self {
        Self { refused, ..self }
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

    /// With dimensions that tell it from a kind of the same keys: see [`dimensions`](Self::dimensions).
    #[must_use]
    pub const fn with_dimensions(self, dimensions: &'static [(&'static str, usize)]) -> Self {
        Self { dimensions, ..self }
    }

    /// With what PEFT calls it: see [`peft_types`](Self::peft_types).
    #[must_use]
    pub const fn with_peft_types(self, peft_types: &'static [&'static str]) -> Self {
        Self { peft_types, ..self }
    }

    /// The first of its signatures that is fully there in `group`.
    fn signature_in(&self, group: &TensorGroup) -> Option<&'static [&'static str]> {
        let mut signatures = self.signatures.iter().copied();
        signatures.find(|signature| signature.iter().all(|key| group.has(key)))
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

    /// Whether the keys of `group` are exactly those of this kind. A wrapper accepts none: it needs another
    /// kind's beside its own.
    #[must_use]
    pub fn accepts(&self, group: &TensorGroup) -> bool {
        let has_dimensions = |(key, dimensions): &(&str, usize)| {
            let data = group.tensors.get(*key);
            data.is_none_or(|data| data.rank() == *dimensions)
        };
        self.dimensions.iter().all(has_dimensions) && self.accepts_keys(group)
    }

    /// As [`accepts`](Self::accepts), whatever the tensors' dimensions.
    fn accepts_keys(&self, group: &TensorGroup) -> bool {
        let mut signatures = self.signatures.iter().chain(self.refused);
        matches!(self.build, Build::Load(_))
            && signatures.any(|signature| {
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
    /// a signature's; where several signatures fit, the fewest, and of as few those of the longest.
    fn missing_keys(&self, group: &TensorGroup) -> Option<Vec<String>> {
        let has = |key: &&str| group.tensors.contains_key(*key);
        if !group
            .tensors
            .keys()
            .all(|key| self.keys().any(|known| known == key))
        {
            return None;
        }
        let signatures = self.signatures.iter();
        let signature = signatures
            .filter(|signature| signature.iter().any(has))
            .min_by_key(|signature| {
                let num_present = signature.iter().copied().filter(|key| has(key)).count();
                (signature.len() - num_present, Reverse(num_present))
            })?;
        let missing = signature.iter().filter(|key| !has(key));
        let missing: Vec<_> = missing.map(|key| String::from(*key)).collect();
        // Two whole signatures are no incomplete one.
        (!missing.is_empty()).then_some(missing)
    }
}

/// Every registered kind, sorted by name; those of one name by their keys, whatever order they are linked in.
#[must_use]
pub fn kinds() -> Vec<&'static PatchKind> {
    let mut kinds: Vec<_> = inventory::iter::<PatchKind>.into_iter().collect();
    kinds.sort_unstable_by_key(|kind| (kind.name, kind.signatures, kind.optional));
    kinds
}

/// Builds the patch whose kind accepts exactly the keys of `group`, in whatever order kinds registered. Where
/// none does, the keys of a wrapper are taken out and its patch is built around that of the others.
///
/// # Errors
/// [`PatchError::Unrecognized`], [`PatchError::Incomplete`] or [`PatchError::Ambiguous`], all naming
/// the keys, or what the kind's own `load` finds wrong.
pub fn load(group: TensorGroup, device: &Device) -> Result<Arc<dyn Patch>, PatchError> {
    let known = kinds();
    let accepting: Vec<_> = known.iter().filter(|kind| kind.accepts(&group)).collect();
    match accepting.as_slice() {
        [kind] => build(kind, group, device),
        [] => match split_wrapper(&group, &known)? {
            Some((wrap, inner, own)) => wrap(load(inner, device)?, own, device),
            None => Err(unaccepted(group, &known)),
        },
        several => Err(PatchError::Ambiguous {
            target: group.target,
            keys: group.tensors.into_keys().collect(),
            kinds: several.iter().map(|kind| kind.name).collect(),
        }),
    }
}

/// Whether some kind, or wrappers around one, accept exactly the keys of `group`.
#[must_use]
pub fn is_accepted(group: &TensorGroup) -> bool {
    let known = kinds();
    let mut group = group.clone();
    loop {
        if known.iter().any(|kind| kind.accepts(&group)) {
            return true;
        }
        match split_wrapper(&group, &known) {
            Ok(Some((_, inner, _))) => group = inner,
            Ok(None) | Err(_) => return false,
        }
    }
}

fn build(
    kind: &PatchKind,
    mut group: TensorGroup,
    device: &Device,
) -> Result<Arc<dyn Patch>, PatchError> {
    let config = group.config.as_ref();
    if let Some(why) = config.and_then(|config| config.misfit(kind.rank(&group))) {
        return Err(group.inconsistent(why));
    }
    if let Some(alpha) = alpha_from_config(kind, &group) {
        group
            .tensors
            .insert(ALPHA.into(), TensorData::from([alpha]));
    }
    match kind.build {
        Build::Load(load) => load(group, device),
        Build::Wrap(_) => Err(unaccepted(group, &kinds())),
    }
}

/// Alpha from the PEFT configuration, for a layer whose kind takes one and that has none of its own.
fn alpha_from_config(kind: &PatchKind, group: &TensorGroup) -> Option<f32> {
    if group.has(ALPHA) || !kind.keys().any(|key| key == ALPHA) {
        return None;
    }
    group.config.as_ref()?.effective_alpha(kind.rank(group)?)
}

/// Whether the group has the keys of a kind whose scale is `alpha / rank`, or its own, and neither of them.
pub(crate) fn lacks_scale(group: &TensorGroup) -> bool {
    let is_scaled =
        |kind: &&PatchKind| [ALPHA, SCALE].iter().all(|key| kind.optional.contains(key));
    let is_there = |kind: &PatchKind| kind.signature_in(group).is_some();
    let mut scaled = kinds().into_iter().filter(is_scaled);
    !group.has(ALPHA) && !group.has(SCALE) && scaled.any(is_there)
}

/// The kinds whose keys `group` has, of those that PEFT writes, when none is what PEFT calls `peft_type`.
pub(crate) fn kinds_of_other_type(group: &TensorGroup, peft_type: &str) -> Vec<&'static PatchKind> {
    let mut kinds = kinds();
    kinds.retain(|kind| !kind.peft_types.is_empty() && kind.signature_in(group).is_some());
    let mut types = kinds.iter().flat_map(|kind| kind.peft_types);
    if types.any(|known| known.eq_ignore_ascii_case(peft_type)) {
        return Vec::new();
    }
    kinds
}

/// Whether the scale of the group's factors is `alpha / rank` for an alpha of 0.
pub(crate) fn has_alpha_of_zero(group: &TensorGroup) -> bool {
    let is_there = |kind: &&PatchKind| kind.rank_key.is_some_and(|key| group.has(key));
    // A scale of the file's own comes before alpha.
    if group.has(SCALE) || !kinds().iter().any(is_there) {
        return false;
    }
    match group.tensors.get(ALPHA) {
        Some(alpha) => alpha.iter::<f32>().all(|alpha| alpha == 0.0),
        None => group.config.as_ref().and_then(|config| config.alpha) == Some(0.0),
    }
}

/// A patch to be laid around another: how, the keys of the other, and its own.
type Split = (WrapPatch, TensorGroup, TensorGroup);

/// The wrapper whose signature is there beside other keys; of several with keys of their own each, that of the first
/// name is the outermost.
///
/// # Errors
/// [`PatchError::Ambiguous`] when several would take the same key.
fn split_wrapper(
    group: &TensorGroup,
    known: &[&'static PatchKind],
) -> Result<Option<Split>, PatchError> {
    let mut splits = known.iter().filter_map(|kind| {
        let Build::Wrap(wrap) = kind.build else {
            return None;
        };
        kind.signature_in(group)?;
        let mut inner = group.clone();
        let own = inner.split_off(&kind.keys().collect::<Vec<_>>());
        (!inner.tensors.is_empty()).then_some((kind.name, (wrap, inner, own)))
    });
    let Some((name, first)) = splits.next() else {
        return Ok(None);
    };
    let takes_same = |(_, (.., own)): &(_, Split)| own.tensors.keys().any(|key| first.2.has(key));
    let others: Vec<_> = splits.filter(takes_same).map(|(name, _)| name).collect();
    if others.is_empty() {
        return Ok(Some(first));
    }
    Err(PatchError::Ambiguous {
        target: group.target.clone(),
        keys: group.tensors.keys().cloned().collect(),
        kinds: [vec![name], others].concat(),
    })
}

const ALPHA: &str = "alpha";
const SCALE: &str = "scale";
