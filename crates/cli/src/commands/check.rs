//! `check`: which keys of an adapter fit a model, without running it. An adapter that cannot be read is an
//! entry like the others, and fails the run when all have been looked at. Both may be lists of keys and shapes.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use burn::tensor::Device;
use overglaze_core::{KeyOutcome, KeyReport, MountReport, adapter_file};
use overglaze_models::{ModelError, TensorShapes, families::LayerCatalog, flux::Naming};
use overglaze_patches::PatchSet;
use serde::Serialize;

use crate::{
    CliError, Console, Exit, adapter_of_keys,
    args::{CheckArgs, GlobalArgs},
    device,
    exit::sentence,
    key_list::is_key_list,
    loras::{self, Listing, Skipped},
    model_of_keys,
    model_source::ModelFiles,
    shown,
};

use super::{
    JSON_VERSION,
    refusals::{Cause, causes},
};

#[derive(Serialize)]
struct Check {
    version: u32,
    model: String,
    adapters: Vec<Checked>,
    /// What else lies in the folders named, and why it is not checked; left out where there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<Skipped>,
}

/// One adapter; where it cannot be checked, only its name and the error.
#[derive(Serialize)]
struct Checked {
    name: String,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Read(Fit),
    Failed { error: String },
}

/// What fits.
#[derive(Serialize)]
pub(super) struct Fit {
    pub(super) keys_applied: usize,
    pub(super) keys_unmatched: usize,
    /// What is to be said of the adapter as a whole; left out where nothing is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    targets: Vec<Target>,
}

#[derive(Serialize)]
struct Target {
    target: String,
    /// Kind of its patch, where one could be built.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    outcome: &'static str,
    /// The model's layers it is laid over; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    layers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    keys: Vec<String>,
    /// What refused targets are grouped by.
    #[serde(skip)]
    cause: Option<Cause>,
}

pub(crate) fn run(
    args: &CheckArgs,
    flags: &GlobalArgs,
    console: &Console,
) -> Result<Exit, CliError> {
    let device = match device::host() {
        Some(device) => device,
        None => device::resolve(flags.device)?,
    };
    let (model, catalog) = model(args)?;
    let (mut adapters, mut errors) = (Vec::new(), Vec::new());
    let named = args.keys.iter().flatten().chain(&args.adapters);
    if named.clone().next().is_none() {
        return Err(CliError::NoLoras(NOTHING_TO_CHECK));
    }
    let Listing {
        adapters: found,
        skipped,
    } = listing(named)?;
    for path in found {
        let name = loras::name(&path);
        let outcome = match Fit::of(&path, &catalog, &device) {
            Ok(fit) => Outcome::Read(fit),
            Err(error) => Outcome::failed(&name, error, &mut errors),
        };
        adapters.push(Checked { name, outcome });
    }
    let check = Check {
        version: JSON_VERSION,
        model,
        adapters,
        skipped,
    };
    console.result(&check, || check.text(args.keys.is_some()))?;
    match not_checked(errors, check.adapters.len()) {
        Some(error) => Err(error),
        None => Ok(check.exit(args.strict)),
    }
}

/// The error of a run in which some adapters failed: its own where it is the only one.
fn not_checked(mut errors: Vec<(String, CliError)>, total: usize) -> Option<CliError> {
    let count = errors.len();
    let (name, error) = errors.drain(..).next()?;
    if total == 1 {
        return Some(error);
    }
    let first = format!("`{name}`: {}", sentence(&error));
    Some(CliError::NotChecked {
        count,
        total,
        first,
    })
}

/// The model's name and layers.
fn model(args: &CheckArgs) -> Result<(String, LayerCatalog), CliError> {
    if let Some(path) = &args.model_keys {
        let catalog = LayerCatalog::new(&model_of_keys(path)?)?;
        return Ok((loras::name(path), catalog));
    }
    let files = ModelFiles::find(args.model.as_deref(), None)?;
    let shapes = TensorShapes::of(&*files.source);
    let catalog = LayerCatalog::new(&shapes)?;
    // Any list of keys is a model to check against, but a file that is given as the model must be one.
    match Naming::detect(&shapes) {
        Err(ModelError::NotFlux { .. }) if !catalog.families().is_empty() => {}
        found => drop(found?),
    }
    Ok((files.source.label(), catalog))
}

/// The adapters named, with those of every folder that is no adapter itself.
fn listing<'a>(named: impl Iterator<Item = &'a PathBuf>) -> Result<Listing, CliError> {
    let mut all = Listing::default();
    for path in named {
        let Listing { adapters, skipped } = loras::list(path)?;
        all.adapters.extend(adapters);
        all.skipped.extend(skipped);
    }
    Ok(all)
}

impl Check {
    /// How the run ends where every adapter could be read.
    fn exit(&self, is_strict: bool) -> Exit {
        let fails = |adapter: &Checked| match &adapter.outcome {
            Outcome::Read(fit) => fit.keys_applied == 0 || (is_strict && fit.keys_unmatched > 0),
            Outcome::Failed { .. } => true,
        };
        if self.adapters.iter().any(fails) {
            Exit::DoesNotFit
        } else {
            Exit::Done
        }
    }

    fn text(&self, has_all_keys: bool) -> String {
        let mut text = String::new();
        for adapter in &self.adapters {
            adapter.write(&mut text, has_all_keys);
        }
        for skipped in &self.skipped {
            text.push_str(&format!("{}\n", skipped.line()));
        }
        text
    }
}

impl Checked {
    fn write(&self, text: &mut String, has_all_keys: bool) {
        let name = shown::name(&self.name);
        let fit = match &self.outcome {
            Outcome::Failed { error } => {
                text.push_str(&format!("{name}: not checked: {error}\n"));
                return;
            }
            Outcome::Read(fit) => fit,
        };
        fit.write(&name, has_all_keys, text);
    }
}

impl Outcome {
    /// The entry of an adapter that cannot be checked; the error itself goes to `errors`.
    fn failed(name: &str, error: CliError, errors: &mut Vec<(String, CliError)>) -> Self {
        let sentence = sentence(&error);
        errors.push((name.to_owned(), error));
        Self::Failed { error: sentence }
    }
}

impl Fit {
    /// Reads the adapter at `path` and looks its keys up in `catalog`.
    fn of(path: &Path, catalog: &LayerCatalog, device: &Device) -> Result<Self, CliError> {
        let set = match is_key_list(path) {
            true => adapter_of_keys(path, device)?,
            false => adapter_file::load(path, device)?,
        };
        Ok(Self::new(catalog.fit(&set)?.report, &set))
    }

    /// What `report` says of `set`.
    pub(super) fn new(report: MountReport, set: &PatchSet) -> Self {
        let causes = causes(set);
        let (keys_applied, keys_unmatched) = (report.keys_applied(), report.keys_unmatched());
        let kinds = kinds(set);
        let targets = report.targets.into_iter().map(|report| {
            let kind = report.keys.first().and_then(|key| kinds.get(key.as_str()));
            Target::new(report, kind.copied(), &causes)
        });
        Self {
            keys_applied,
            keys_unmatched,
            notes: set.notes.clone(),
            targets: targets.collect(),
        }
    }

    /// What `report` says of `set` as a whole: its notes, and why keys are left over.
    pub(super) fn notes(report: &MountReport, set: &PatchSet) -> Vec<String> {
        let fit = Self::new(report.clone(), set);
        let failures = fit.failures();
        let said = failures.iter().take(MAX_REASONS);
        let mut notes = fit.notes.clone();
        notes.extend(said.map(|(target, reason)| format!("{} {reason}", target.outcome)));
        if failures.len() > MAX_REASONS {
            notes.push(ALL_REASONS.into());
        }
        notes
    }

    /// Writes a line on the adapter `name`, and below it every target or those that failed.
    pub(super) fn write(&self, name: &str, has_all_keys: bool, text: &mut String) {
        let (applied, left) = (self.keys_applied, self.keys_unmatched);
        text.push_str(&format!(
            "{name}: {applied} keys applied, {left} left over\n"
        ));
        for note in &self.notes {
            text.push_str(&format!("  {:14} {}\n", "note", shown::message(note)));
        }
        if has_all_keys {
            self.write_all(text);
        } else {
            self.write_failures(text);
        }
    }

    fn write_all(&self, text: &mut String) {
        for target in &self.targets {
            let reason = target
                .reason
                .as_ref()
                .map_or_else(String::new, |why| format!(": {}", shown::message(why)));
            text.push_str(&format!(
                "  {:14} {}{}{reason}\n",
                target.outcome,
                shown::name(&target.target),
                target.place(),
            ));
            for key in &target.keys {
                text.push_str(&format!("  {:14} {}\n", "", shown::name(key)));
            }
        }
    }

    /// What failed, with targets that failed for the same reason on one line.
    fn write_failures(&self, text: &mut String) {
        for (target, reason) in self.failures() {
            text.push_str(&format!("  {:14} {reason}\n", target.outcome));
        }
    }

    /// The first target of every kind of failure, and what is to be said of all of them.
    fn failures(&self) -> Vec<(&Target, String)> {
        let mut groups: Vec<(&Target, &String, usize)> = Vec::new();
        for target in &self.targets {
            let Some(reason) = &target.reason else {
                continue;
            };
            match groups
                .iter_mut()
                .find(|(first, ..)| first.fails_like(target))
            {
                Some((.., count)) => *count += 1,
                None => groups.push((target, reason, 1)),
            }
        }
        let said = groups.into_iter().map(|(target, reason, count)| {
            let others = if count > 1 {
                format!(" and {} more", count - 1)
            } else {
                String::new()
            };
            let (name, reason) = (shown::name(&target.target), shown::message(reason));
            (target, format!("{name}{others}: {reason}"))
        });
        said.collect()
    }
}

impl Target {
    fn new(report: KeyReport, kind: Option<&str>, causes: &BTreeMap<&str, Cause>) -> Self {
        let layers = match &report.outcome {
            KeyOutcome::Applied { layers } => layers.clone(),
            _ => Vec::new(),
        };
        let is_applied = matches!(report.outcome, KeyOutcome::Applied { .. });
        let is_refused = matches!(
            report.outcome,
            KeyOutcome::Refused { .. } | KeyOutcome::KindUnknown { .. }
        );
        let cause = causes.get(report.target.as_str()).copied();
        Self {
            kind: kind.map(Into::into),
            layers,
            outcome: report.outcome.name(),
            reason: (!is_applied).then(|| report.outcome.reason()),
            cause: cause.filter(|_| is_refused),
            target: report.target,
            keys: report.keys,
        }
    }

    /// ` (kind)`, and before it the layers where they have another name.
    fn place(&self) -> String {
        let layers = match self.layers.as_slice() {
            [only] if *only == self.target => String::new(),
            [] => String::new(),
            layers => {
                let layers: Vec<_> = layers.iter().map(|layer| shown::name(layer)).collect();
                format!(" -> {}", layers.join(", "))
            }
        };
        let kind = self.kind.as_ref().filter(|_| self.reason.is_none());
        let kind = kind.map_or_else(String::new, |kind| format!(" ({})", shown::name(kind)));
        layers + &kind
    }

    /// Whether two targets failed for the same reason.
    fn fails_like(&self, other: &Self) -> bool {
        let is_same = match (self.cause, other.cause) {
            (None, None) => self.reason == other.reason,
            causes => causes.0 == causes.1,
        };
        is_same && self.outcome == other.outcome
    }
}

/// The kind of every patch, by the first of its keys.
fn kinds(set: &PatchSet) -> BTreeMap<&str, &str> {
    let entries = set.entries.iter();
    entries
        .filter_map(|entry| Some((entry.keys.first()?.as_str(), entry.patch.kind())))
        .collect()
}

/// Reasons in the notes of a command that has other things to tell.
const MAX_REASONS: usize = 4;

const ALL_REASONS: &str =
    "more keys are left over for other reasons; `overglaze check` lists them all";

const NOTHING_TO_CHECK: &str =
    "no adapter is named; give files, folders, or a JSON list of keys and shapes";
