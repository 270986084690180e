//! Fitting a patch set to a model: pure lookup and checking, nothing is changed.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    ops::Range,
    sync::Arc,
};

use overglaze_patches::{
    LayerShape, Patch, PatchEntry, PatchError, PatchSet, RowPart, RowRanges, slice_rows,
};

use crate::{Error, KeyOutcome, KeyReport, LayerLimits, LayerTree, MountReport, NameTable, Piece};

/// A set whose every patch has its place.
#[derive(Debug)]
pub struct Fitted {
    /// Layer path to the one patch laid over it.
    pub patches: HashMap<String, Arc<dyn Patch>>,
    /// What became of every key.
    pub report: MountReport,
}

/// The layers of a model that is not loaded: names, and the shape of a layer by its path.
#[derive(Clone, Copy)]
pub struct LayerShapes<'a> {
    /// Names and aliases.
    pub names: &'a NameTable,
    /// Shape of the layer at a path.
    pub shape: &'a dyn Fn(&str) -> Option<LayerShape>,
    /// What the layer at a path cannot do for a patch.
    pub limits: &'a dyn Fn(&str) -> LayerLimits,
}

impl fmt::Debug for LayerShapes<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names.names().len();
        write!(formatter, "LayerShapes({names} names)")
    }
}

/// Finds the layers of `set` in `tree` and checks every shape; at least one key must fit.
pub(crate) fn fit(tree: &impl LayerTree, name: &str, set: &PatchSet) -> Result<Fitted, Error> {
    let fitted = fit_tree(tree, set)?;
    if fitted.patches.is_empty() {
        return Err(nothing_applied(name, &fitted.report));
    }
    Ok(fitted)
}

/// The patch of every layer that `set` has one for, and what became of every key; also where nothing applies.
///
/// # Errors
/// [`Error::Layer`] when a name stands for rows its layer does not have, or for some twice.
pub fn fit_shapes(layers: LayerShapes<'_>, set: &PatchSet) -> Result<Fitted, Error> {
    let mut claims = Claims::new();
    let mut report = MountReport::default();
    for entry in &set.entries {
        let outcome = match layers.names.resolve(&entry.target) {
            Some(pieces) => place(entry, pieces, layers, &mut claims),
            None if entry.component.is_text_encoder() => KeyOutcome::NotLoaded {
                component: entry.component,
            },
            None => KeyOutcome::Unmatched {
                nearest: suggestions(layers.names, entry, &report),
            },
        };
        let target = entry.target.as_str().into();
        report.targets.push(KeyReport {
            target,
            keys: entry.keys.clone(),
            outcome,
        });
    }
    report_unbuilt(set, &mut report);
    let patches = claims
        .into_iter()
        .map(|(layer, claims)| {
            let parts = claims.into_iter().map(|claim| claim.part).collect();
            let d_output = (layers.shape)(layer).map_or(0, |shape| shape.d_output());
            Ok((layer.to_owned(), joined(layer, parts, d_output)?))
        })
        .collect::<Result<HashMap<_, _>, Error>>()?;
    Ok(Fitted { patches, report })
}

fn fit_tree(tree: &impl LayerTree, set: &PatchSet) -> Result<Fitted, Error> {
    let shapes = shapes_of(tree);
    let layers = LayerShapes {
        names: tree.names(),
        shape: &|path| shapes.get(path).map(|(shape, _)| shape.clone()),
        limits: &|path| {
            shapes
                .get(path)
                .map_or_else(LayerLimits::default, |(_, limits)| *limits)
        },
    };
    fit_shapes(layers, set)
}

/// Nearest names, for the first few misses only: each costs a walk over every name of the model.
fn suggestions(names: &NameTable, entry: &PatchEntry, report: &MountReport) -> Vec<String> {
    let is_miss = |target: &&KeyReport| matches!(target.outcome, KeyOutcome::Unmatched { .. });
    if report.targets.iter().filter(is_miss).count() >= MAX_SUGGESTIONS {
        return Vec::new();
    }
    names.nearest(&entry.target)
}

/// The shape of every layer, and what it cannot do for a patch.
type Shapes = HashMap<String, (LayerShape, LayerLimits)>;

fn shapes_of(tree: &impl LayerTree) -> Shapes {
    let mut shapes = HashMap::new();
    tree.visit_layers(&mut |path, layer| {
        shapes.insert(path.to_owned(), (layer.layer_shape(), layer.limits()));
    });
    shapes
}

/// Rows of a layer and the target of the file that is for them.
struct Claim<'a> {
    target: &'a str,
    part: RowPart,
}

/// The claims on every layer, by its path.
type Claims<'a> = BTreeMap<&'a str, Vec<Claim<'a>>>;

/// Adds the entry's pieces to `claims`, or says why it does not fit.
fn place<'a>(
    entry: &'a PatchEntry,
    pieces: &'a [Piece],
    layers: LayerShapes<'_>,
    claims: &mut Claims<'a>,
) -> KeyOutcome {
    let target = entry.target.as_str();
    if let Some(why) = clash(target, pieces, claims) {
        return KeyOutcome::Refused { why };
    }
    let num_rows = pieces.iter().map(|piece| piece.target_rows.end).max();
    let num_rows = num_rows.unwrap_or(0);
    let cut = pieces.iter().map(|piece| {
        let Some(layer) = (layers.shape)(&piece.layer) else {
            return Err(KeyOutcome::Unmatched {
                nearest: Vec::new(),
            });
        };
        let limits = (layers.limits)(&piece.layer);
        let rows = |num_rows: usize| match num_rows == layer.d_output() {
            true => layer.clone(),
            false => layer.with_rows(num_rows),
        };
        let whole = entry.patch.check(&rows(num_rows));
        let patch = whole.map(|()| rows_of(&entry.patch, &piece.target_rows, num_rows));
        let patch = patch.and_then(|patch| {
            limits.check(&*patch, &rows(piece.layer_rows.len()))?;
            Ok(patch)
        });
        Ok((piece, patch.map_err(|error| misfit(&error))?))
    });
    let cut: Vec<_> = match cut.collect() {
        Ok(cut) => cut,
        Err(outcome) => return outcome,
    };
    for (piece, patch) in cut {
        let rows = piece.layer_rows.clone();
        let part = RowPart { rows, patch };
        let claims = claims.entry(piece.layer.as_str()).or_default();
        claims.push(Claim { target, part });
    }
    KeyOutcome::Applied {
        layers: pieces.iter().map(|piece| piece.layer.clone()).collect(),
    }
}

/// Why `target` cannot have its rows: an earlier target of the file has some of them.
fn clash(target: &str, pieces: &[Piece], claims: &Claims<'_>) -> Option<String> {
    pieces.iter().find_map(|Piece { layer, layer_rows, .. }| {
        let meets = |claim: &&Claim<'_>| {
            let rows = &claim.part.rows;
            rows.start < layer_rows.end && layer_rows.start < rows.end
        };
        let earlier = claims.get(layer.as_str())?.iter().find(meets)?;
        Some(format!(
            "`{target}` and `{}` of this file are both for rows {layer_rows:?} of layer `{layer}`; only \
             the latter is laid over it",
            earlier.target
        ))
    })
}

/// A patch of another shape, or one that cannot be cut to the rows this model has.
fn misfit(error: &PatchError) -> KeyOutcome {
    let why = error.to_string();
    match error {
        PatchError::DoesNotFit { patch, base, .. } => KeyOutcome::ShapeMismatch {
            found: patch.to_vec(),
            expected: base.clone(),
            why,
        },
        PatchError::OtherAxes { patch, base, .. } => KeyOutcome::ShapeMismatch {
            found: patch.clone(),
            expected: base.clone(),
            why,
        },
        _ => KeyOutcome::Refused { why },
    }
}

fn rows_of(patch: &Arc<dyn Patch>, rows: &Range<usize>, num_rows: usize) -> Arc<dyn Patch> {
    if *rows == (0..num_rows) {
        return Arc::clone(patch);
    }
    slice_rows(patch, rows.clone())
}

/// One patch for one layer: the only part when it covers the layer, else the parts by row range.
fn joined(layer: &str, mut parts: Vec<RowPart>, d_output: usize) -> Result<Arc<dyn Patch>, Error> {
    if parts.len() == 1 && parts[0].rows == (0..d_output) {
        return Ok(parts.pop().expect("there is one part").patch);
    }
    let ranges = RowRanges::new(d_output, parts).map_err(|source: PatchError| Error::Layer {
        layer: layer.into(),
        source: Box::new(source),
    })?;
    Ok(Arc::new(ranges))
}

fn report_unbuilt(set: &PatchSet, report: &mut MountReport) {
    for group in &set.refused {
        let why = group.error.to_string();
        let outcome = match group.error {
            PatchError::Unrecognized { .. } => KeyOutcome::KindUnknown { why },
            _ => KeyOutcome::Refused { why },
        };
        let (target, keys) = (group.target.clone(), group.keys.clone());
        report.targets.push(KeyReport {
            target,
            keys,
            outcome,
        });
    }
    let duplicates = set
        .duplicates
        .iter()
        .map(|key| (key, KeyOutcome::Duplicate));
    let unread = set.unread.iter().map(|key| (key, KeyOutcome::Unread));
    for (key, outcome) in duplicates.chain(unread) {
        let (target, keys) = (key.clone(), vec![key.clone()]);
        report.targets.push(KeyReport {
            target,
            keys,
            outcome,
        });
    }
}

/// That not one key of the set has an effect.
pub(crate) fn nothing_applied(name: &str, report: &MountReport) -> Error {
    let why = match report.first_failure() {
        Some(first) => format!(
            "none of its {} keys could be applied; the first: {first}",
            report.keys_unmatched()
        ),
        None => "it holds no patches".into(),
    };
    Error::NothingApplied {
        name: name.into(),
        why,
    }
}

const MAX_SUGGESTIONS: usize = 8;
