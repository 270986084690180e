//! `check`: which keys of an adapter fit a model, without running it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use overglaze_core::{KeyOutcome, KeyReport, MountReport, adapter_file, fit_report};
use overglaze_models::TensorShapes;
use serde::Serialize;

use crate::{
    CliError, Console, Exit, ShapeTree,
    args::{CheckArgs, GlobalArgs},
    device, loras, model_source,
    model_source::ModelFiles,
};

use super::JSON_VERSION;

#[derive(Serialize)]
struct Check {
    version: u32,
    model: String,
    adapters: Vec<Checked>,
}

#[derive(Serialize)]
struct Checked {
    name: String,
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
    let mut adapters = Vec::new();
    for path in paths(&args.adapters)? {
        let set = adapter_file::load(&path, &device)?;
        let report = fit_report(&tree, &set)?;
        adapters.push(Checked::new(loras::name(&path), report));
    }
    let check = Check {
        version: JSON_VERSION,
        model,
        adapters,
    };
    console.result(&check, || check.text(args.keys))?;
    Ok(check.exit(args.strict))
}

/// The model's name and layers.
fn model(args: &CheckArgs, device: &burn::tensor::Device) -> Result<(String, ShapeTree), CliError> {
    if let Some(path) = &args.model_keys {
        let tree = ShapeTree::new(&keys(path)?, None, device)?;
        return Ok((loras::name(path), tree));
    }
    let files = ModelFiles::find(args.model.as_deref(), None)?;
    let shapes = TensorShapes::of(&*files.source);
    let tree = ShapeTree::new(&shapes, files.config.as_ref(), device)?;
    Ok((files.source.label(), tree))
}

/// Names and shapes from `{"key": [shape]}`.
fn keys(path: &Path) -> Result<TensorShapes, CliError> {
    let text = model_source::read(path)?;
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
    fn exit(&self, is_strict: bool) -> Exit {
        let fails = |adapter: &Checked| {
            adapter.keys_applied == 0 || (is_strict && adapter.keys_unmatched > 0)
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
    fn new(name: String, report: MountReport) -> Self {
        Self {
            name,
            keys_applied: report.keys_applied(),
            keys_unmatched: report.keys_unmatched(),
            targets: report.targets.into_iter().map(Target::new).collect(),
        }
    }

    fn write(&self, text: &mut String, has_all_keys: bool) {
        let Self {
            name,
            keys_applied,
            keys_unmatched,
            targets,
        } = self;
        text.push_str(&format!(
            "{name}: {keys_applied} keys applied, {keys_unmatched} left over\n"
        ));
        if !has_all_keys {
            return self.write_failures(text);
        }
        for target in targets {
            let reason = target
                .reason
                .as_ref()
                .map_or_else(String::new, |why| format!(": {why}"));
            text.push_str(&format!(
                "  {:14} {}{reason}\n",
                target.outcome, target.target
            ));
            for key in &target.keys {
                text.push_str(&format!("  {:14} {key}\n", ""));
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
                .find(|(first, known, _)| first.outcome == target.outcome && *known == reason)
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
                "  {:14} {}{others}: {reason}\n",
                target.outcome, target.target
            ));
        }
    }
}

impl Target {
    fn new(report: KeyReport) -> Self {
        let is_applied = matches!(report.outcome, KeyOutcome::Applied { .. });
        let reason = report.outcome.reason();
        Self {
            outcome: report.outcome.name(),
            reason: (!is_applied).then(|| without_layer(&report.target, &reason).to_owned()),
            target: report.target,
            keys: report.keys,
        }
    }
}

/// A reason without the layer it is about, where that stands before it already.
pub(super) fn without_layer<'a>(layer: &str, reason: &'a str) -> &'a str {
    reason
        .strip_prefix(&format!("layer `{layer}`: "))
        .unwrap_or(reason)
}

/// Dimensions of a weight at most.
const MAX_RANK: usize = 8;
