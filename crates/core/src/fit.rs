//! Fitting a patch set to a model: pure lookup and checking, nothing is changed.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use overglaze_patches::{Patch, PatchEntry, PatchError, PatchSet, RowPart, RowRanges, slice_rows};

use crate::{Error, KeyOutcome, KeyReport, LayerTree, MountReport, Piece, report::spelled};

/// A set whose every patch has its place.
#[derive(Debug)]
pub(crate) struct Fitted {
    /// Layer path to the one patch laid over it.
    pub(crate) patches: HashMap<String, Arc<dyn Patch>>,
    pub(crate) report: MountReport,
}

/// What would become of every key of `set` on `tree`, which stays as it is; also where nothing applies.
///
/// # Errors
/// [`Error::Layer`] when two keys are for the same rows of one layer.
pub fn fit_report(tree: &impl LayerTree, set: &PatchSet) -> Result<MountReport, Error> {
    Ok(fit_keys(tree, set)?.report)
}

/// Finds the layers of `set` in `tree` and checks every shape; at least one key must fit.
pub(crate) fn fit(tree: &impl LayerTree, name: &str, set: &PatchSet) -> Result<Fitted, Error> {
    let fitted = fit_keys(tree, set)?;
    if fitted.patches.is_empty() {
        return Err(nothing_applied(name, &fitted.report));
    }
    Ok(fitted)
}

fn fit_keys(tree: &impl LayerTree, set: &PatchSet) -> Result<Fitted, Error> {
    let shapes = shapes_of(tree);
    let mut parts: BTreeMap<&str, Vec<RowPart>> = BTreeMap::new();
    let mut report = MountReport::default();
    for entry in &set.entries {
        let outcome = match tree.names().resolve(&entry.target) {
            Some(pieces) => place(entry, pieces, &shapes, &mut parts),
            None => KeyOutcome::Unmatched {
                nearest: suggestions(tree, entry, &report),
            },
        };
        let target = spelled(&entry.target).into();
        report.targets.push(KeyReport {
            target,
            keys: entry.keys.clone(),
            outcome,
        });
    }
    report_unbuilt(set, &mut report);
    let patches = parts
        .into_iter()
        .map(|(layer, parts)| Ok((layer.to_owned(), joined(layer, parts, shapes[layer][0])?)))
        .collect::<Result<HashMap<_, _>, Error>>()?;
    Ok(Fitted { patches, report })
}

/// Nearest names, for the first few misses only: each costs a walk over every name of the model.
fn suggestions(tree: &impl LayerTree, entry: &PatchEntry, report: &MountReport) -> Vec<String> {
    let is_miss = |target: &&KeyReport| matches!(target.outcome, KeyOutcome::Unmatched { .. });
    if report.targets.iter().filter(is_miss).count() >= MAX_SUGGESTIONS {
        return Vec::new();
    }
    tree.names().nearest(&entry.target)
}

fn shapes_of(tree: &impl LayerTree) -> HashMap<String, [usize; 2]> {
    let mut shapes = HashMap::new();
    tree.visit_layers(&mut |path, layer| {
        shapes.insert(path.to_owned(), layer.weight_shape());
    });
    shapes
}

/// Adds the entry's pieces to `parts`, or says why it does not fit.
fn place<'a>(
    entry: &PatchEntry,
    pieces: &'a [Piece],
    shapes: &HashMap<String, [usize; 2]>,
    parts: &mut BTreeMap<&'a str, Vec<RowPart>>,
) -> KeyOutcome {
    let num_rows = pieces.iter().map(|piece| piece.target_rows.end).max();
    let num_rows = num_rows.unwrap_or(0);
    let cut = pieces.iter().map(|piece| {
        let Some([_, fan_in]) = shapes.get(&piece.layer) else {
            return Err(KeyOutcome::Unmatched {
                nearest: Vec::new(),
            });
        };
        let whole = entry.patch.check([num_rows, *fan_in]);
        let patch = whole.map(|()| rows_of(&entry.patch, &piece.target_rows, num_rows));
        let patch = patch.and_then(|patch| {
            patch.check([piece.layer_rows.len(), *fan_in])?;
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
        parts.entry(piece.layer.as_str()).or_default().push(part);
    }
    KeyOutcome::Applied {
        layers: pieces.iter().map(|piece| piece.layer.clone()).collect(),
    }
}

/// A patch of another shape, or one that cannot be cut to the rows this model has.
fn misfit(error: &PatchError) -> KeyOutcome {
    let why = error.to_string();
    match error {
        PatchError::DoesNotFit { .. } => KeyOutcome::ShapeMismatch { why },
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
        source,
    })?;
    Ok(Arc::new(ranges))
}

fn report_unbuilt(set: &PatchSet, report: &mut MountReport) {
    for group in &set.refused {
        let outcome = KeyOutcome::Refused {
            why: group.error.to_string(),
        };
        let (target, keys) = (group.target.clone(), group.keys.clone());
        report.targets.push(KeyReport {
            target,
            keys,
            outcome,
        });
    }
    for key in &set.unread {
        let (target, keys) = (key.clone(), vec![key.clone()]);
        report.targets.push(KeyReport {
            target,
            keys,
            outcome: KeyOutcome::Unread,
        });
    }
}

fn nothing_applied(name: &str, report: &MountReport) -> Error {
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
