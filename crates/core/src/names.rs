//! The model's own layer names, their aliases, and the lookup of a file's target name among them.
//!
//! An alias may stand for some rows of a layer (`to_q` of a fused `qkv`), for rows of several layers
//! (`qkv` of a split model) or for the rows of one layer in another order. Underscore names cannot be
//! undone by rule; no two names have the same underscore spelling, so that it can be looked up. Some files write
//! underscores for some of the dots (`diffusion_model.final_layer_linear`): they are looked up likewise.

use std::{collections::HashMap, ops::Range};

use overglaze_patches::TargetName;

use crate::Error;

/// Where some rows of an aliased weight are in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Path of the layer.
    pub layer: String,
    /// Output rows of the layer.
    pub layer_rows: Range<usize>,
    /// The same rows of the aliased weight.
    pub target_rows: Range<usize>,
}

/// Layer names and aliases of one model.
#[derive(Clone, Debug, Default)]
pub struct NameTable {
    pieces: HashMap<String, Vec<Piece>>,
    flattened: HashMap<String, String>,
}

impl NameTable {
    /// Adds a layer with `d_output` output rows under its own path.
    ///
    /// # Errors
    /// As [`add_alias`](Self::add_alias).
    pub fn add_layer(&mut self, path: &str, d_output: usize) -> Result<(), Error> {
        let whole = Piece {
            layer: path.into(),
            layer_rows: 0..d_output,
            target_rows: 0..d_output,
        };
        self.add_alias(path, vec![whole])
    }

    /// Adds another name for rows of one or several layers.
    ///
    /// # Errors
    /// [`Error::AmbiguousName`] when another name has the same underscore spelling,
    /// [`Error::ConflictingName`] when this name stands for other rows already.
    pub fn add_alias(&mut self, alias: &str, pieces: Vec<Piece>) -> Result<(), Error> {
        let flattened = alias.replace('.', "_");
        if let Some(first) = self
            .flattened
            .get(&flattened)
            .filter(|first| *first != alias)
        {
            return Err(Error::AmbiguousName {
                first: first.clone(),
                second: alias.into(),
                flattened,
            });
        }
        if let Some(known) = self.pieces.get(alias).filter(|known| **known != pieces) {
            return Err(Error::ConflictingName {
                name: alias.into(),
                first: spelled(known),
                second: spelled(&pieces),
            });
        }
        self.flattened.insert(flattened, alias.into());
        self.pieces.insert(alias.into(), pieces);
        Ok(())
    }

    /// Where the target is in the model; `None` when the model has no such layer.
    #[must_use]
    pub fn resolve(&self, target: &TargetName) -> Option<&[Piece]> {
        let by_spelling = |name: &str| self.pieces.get(self.flattened.get(name)?);
        let pieces = match target {
            TargetName::Dotted(name) => self
                .pieces
                .get(name)
                .or_else(|| by_spelling(&name.replace('.', "_"))),
            TargetName::Flattened(name) => by_spelling(name),
        };
        pieces.map(Vec::as_slice)
    }

    /// Up to three names nearest to the target's, for messages.
    #[must_use]
    pub fn nearest(&self, target: &TargetName) -> Vec<String> {
        let (name, names): (_, Vec<&String>) = match target {
            TargetName::Dotted(name) => (name, self.pieces.keys().collect()),
            TargetName::Flattened(name) => (name, self.flattened.keys().collect()),
        };
        let mut scored: Vec<_> = names
            .into_iter()
            .map(|known| (strsim::normalized_levenshtein(name, known), known))
            .filter(|(score, _)| *score > 0.6)
            .collect();
        scored.sort_by(|(a, first), (b, second)| b.total_cmp(a).then_with(|| first.cmp(second)));
        scored
            .into_iter()
            .take(3)
            .map(|(_, known)| known.clone())
            .collect()
    }

    /// Every name and alias, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.pieces.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

fn spelled(pieces: &[Piece]) -> String {
    let rows = |piece: &Piece| format!("rows {:?} of `{}`", piece.layer_rows, piece.layer);
    match pieces {
        [] => "nothing".into(),
        _ => pieces.iter().map(rows).collect::<Vec<_>>().join(" and "),
    }
}
