//! `check`: which keys of an adapter fit a model, without running it. An adapter that cannot be read is an
//! entry like the others, and fails the run when all have been looked at.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use burn::tensor::Device;
use overglaze_core::{KeyOutcome, KeyReport, adapter_file, fit_report};
use overglaze_models::{TensorShapes, flux::Naming};
use serde::Serialize;

use crate::{
    CliError, Console, Exit, ShapeTree,
    args::{CheckArgs, GlobalArgs},
    device, document,
    exit::sentence,
    loras,
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
struct Fit {
    keys_applied: usize,
    keys_unmatched: usize,
    targets: Vec<Target>,
}

#[derive(Serialize)]
struct Target {
    target: String,
    outcome: &'static str,
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
    let (model, tree) = model(args, &device)?;
    let (mut adapters, mut errors) = (Vec::new(), Vec::new());
    for path in paths(&args.adapters)? {
        let name = loras::name(&path);
        let outcome = match Fit::of(&path, &tree, &device) {
            Ok(fit) => Outcome::Read(fit),
            Err(error) => Outcome::failed(&name, error, &mut errors),
        };
        adapters.push(Checked { name, outcome });
    }
    let check = Check {
        version: JSON_VERSION,
        model,
        adapters,
    };
    console.result(&check, || check.text(args.keys))?;
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
fn model(args: &CheckArgs, device: &Device) -> Result<(String, ShapeTree), CliError> {
    if let Some(path) = &args.model_keys {
        let tree = ShapeTree::new(&keys(path)?, None, device)?;
        return Ok((loras::name(path), tree));
    }
    let files = ModelFiles::find(args.model.as_deref(), None)?;
    let shapes = TensorShapes::of(&*files.source);
    // Any list of keys is a model to check against, but a file that is given as the model must be one.
    Naming::detect(&shapes)?;
    let tree = ShapeTree::new(&shapes, files.config.as_ref(), device)?;
    Ok((files.source.label(), tree))
}

/// Names and shapes from `{"key": [shape]}`.
fn keys(path: &Path) -> Result<TensorShapes, CliError> {
    let text = document::read(path, document::MAX_KEYS_BYTES)?;
    let expected = "a JSON object from key to shape, such as {\"x_embedder.weight\": [3072, 64]}";
    let keys: BTreeMap<String, Vec<usize>> =
        serde_json::from_slice(&text).map_err(|source| CliError::Json {
            path: path.to_owned(),
            expected,
            source,
        })?;
    for (key, shape) in &keys {
        if shape.is_empty() || shape.len() > MAX_RANK || shape.contains(&0) {
            let (path, key, found) = (path.to_owned(), key.clone(), shape.clone());
            return Err(CliError::KeyShape { path, key, found });
        }
    }
    Ok(TensorShapes::new(loras::name(path), keys))
}

/// The adapters named, with those of every folder that is no adapter itself.
fn paths(named: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let listings = named
        .iter()
        .map(|path| loras::list(path))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(listings
        .into_iter()
        .flat_map(|listing| listing.adapters)
        .collect())
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
        let (applied, left) = (fit.keys_applied, fit.keys_unmatched);
        text.push_str(&format!(
            "{name}: {applied} keys applied, {left} left over\n"
        ));
        if has_all_keys {
            fit.write_all(text);
        } else {
            fit.write_failures(text);
        }
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
    /// Reads the adapter at `path` and looks its keys up in `tree`.
    fn of(path: &Path, tree: &ShapeTree, device: &Device) -> Result<Self, CliError> {
        let set = adapter_file::load(path, device)?;
        let report = fit_report(tree, &set)?;
        let causes = causes(&set);
        let (keys_applied, keys_unmatched) = (report.keys_applied(), report.keys_unmatched());
        let targets = report.targets.into_iter();
        Ok(Self {
            keys_applied,
            keys_unmatched,
            targets: targets.map(|report| Target::new(report, &causes)).collect(),
        })
    }

    fn write_all(&self, text: &mut String) {
        for target in &self.targets {
            let reason = target
                .reason
                .as_ref()
                .map_or_else(String::new, |why| format!(": {}", shown::message(why)));
            text.push_str(&format!(
                "  {:14} {}{reason}\n",
                target.outcome,
                shown::name(&target.target)
            ));
            for key in &target.keys {
                text.push_str(&format!("  {:14} {}\n", "", shown::name(key)));
            }
        }
    }

    /// What failed, with targets that failed for the same reason on one line.
    fn write_failures(&self, text: &mut String) {
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
        for (target, reason, count) in groups {
            let others = if count > 1 {
                format!(" and {} more", count - 1)
            } else {
                String::new()
            };
            text.push_str(&format!(
                "  {:14} {}{others}: {}\n",
                target.outcome,
                shown::name(&target.target),
                shown::message(reason)
            ));
        }
    }
}

impl Target {
    fn new(report: KeyReport, causes: &BTreeMap<&str, Cause>) -> Self {
        let is_applied = matches!(report.outcome, KeyOutcome::Applied { .. });
        let is_refused = matches!(report.outcome, KeyOutcome::Refused { .. });
        let cause = causes.get(report.target.as_str()).copied();
        Self {
            outcome: report.outcome.name(),
            reason: (!is_applied).then(|| report.outcome.reason()),
            cause: cause.filter(|_| is_refused),
            target: report.target,
            keys: report.keys,
        }
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

/// Dimensions of a weight at most.
const MAX_RANK: usize = 8;
