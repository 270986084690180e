//! Baking patch sets into resident layers, and restoring the base bit for bit.
//!
//! Merging is mounting directly, on every layer. The base itself is kept: the merged weight is laid over it and
//! dropped again by [`restore`], so restoring cannot round. Merged weights cost their own dense bytes beside
//! the base.

use crate::{Error, LayerTree, MountReport, Mounting, Placement, change::Change, mount::swap};

/// Merges `sets` into the layers of `tree`: `W' = W + Σ strength · ΔW`, every ΔW taken against the base,
/// computed in f32 and rounded once to the dtype the base computes in; a bias keeps its own.
///
/// What is mounted already stays: merged sets become one with these, sidecars stay above them. The sets can be
/// taken off one by one as well, with [`unmount`](crate::unmount).
///
/// # Errors
/// [`Error::MergeStreamed`], or as [`mount`](crate::mount()); the model is then as it was.
pub fn merge<'a, M>(tree: &mut impl LayerTree, sets: &[M]) -> Result<Vec<MountReport>, Error>
where
    M: Clone + Into<Mounting<'a>>,
{
    let directly = |set: &M| set.clone().into().with_placement(Placement::Direct);
    swap(tree, &[], &sets.iter().map(directly).collect::<Vec<_>>())
}

/// Takes every merged set off; the base is again what it was, bit for bit. Sidecars stay.
///
/// # Panics
/// Never: dropping merged weights needs no values of the base.
pub fn restore(tree: &mut impl LayerTree) {
    let change = Change::plan(&*tree, |_, _, stack| Ok(stack.remove_direct()));
    change
        .expect("without direct patches nothing is computed")
        .put(tree);
}
