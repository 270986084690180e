//! `inspect`: what is in a file.

mod adapter;
mod comparison;
mod model;
mod tensors;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use overglaze_core::adapter_file;
use overglaze_models::FluxConfigFile;
use overglaze_stream::WeightSource;
use serde::Serialize;

use crate::{
    CliError, Console, Exit, args::InspectArgs, demo, exit::sentence, key_list, loras,
    model_source::config_file, shown, tensor_file::open,
};

use super::JSON_VERSION;

use self::{adapter::Adapter, comparison::Comparison, model::Model, tensors::Tensors};

#[derive(Serialize)]
struct Inspection {
    version: u32,
    files: Vec<Outcome>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Read(Box<Inspected>),
    Failed { file: String, error: String },
}

#[derive(Serialize)]
struct Inspected {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Model>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<Adapter>,
    metadata: BTreeMap<String, String>,
    #[serde(flatten)]
    tensors: Tensors,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
}

pub(crate) fn run(args: &InspectArgs, console: &Console) -> Result<Exit, CliError> {
    let other = args.compare.as_deref().map(open).transpose()?;
    let config = args.config.as_deref().map(config_file).transpose()?;
    let paths: Vec<PathBuf> = args.files.iter().flat_map(|path| expanded(path)).collect();
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    for path in &paths {
        files.push(
            match inspected(path, config.as_ref(), other.as_deref(), console) {
                Ok(inspected) => Outcome::Read(Box::new(inspected)),
                // Of a single file there is nothing else to tell.
                Err(error) if paths.len() == 1 => return Err(error),
                Err(error) => {
                    let (file, error) = (path.display().to_string(), sentence(&error));
                    errors.push(error.clone());
                    Outcome::Failed { file, error }
                }
            },
        );
    }
    let version = JSON_VERSION;
    let inspection = Inspection { version, files };
    console.result(&inspection, || inspection.text())?;
    let count = errors.len();
    match errors.into_iter().next() {
        None => Ok(Exit::Done),
        Some(first) => Err(CliError::NotInspected {
            count,
            total: paths.len(),
            first,
        }),
    }
}

/// The path itself, or the adapters of a folder.
fn expanded(path: &Path) -> Vec<PathBuf> {
    let is_one = !path.is_dir() || adapter_file::is_peft_folder(path) || open(path).is_ok();
    let listing = if is_one { None } else { loras::list(path).ok() };
    listing.map_or_else(|| vec![path.to_owned()], |listing| listing.adapters)
}

fn inspected(
    path: &Path,
    config: Option<&FluxConfigFile>,
    other: Option<&dyn WeightSource>,
    console: &Console,
) -> Result<Inspected, CliError> {
    let source = open(path).map_err(|error| match key_list::is_list(path) {
        true => CliError::KeyList {
            path: path.to_owned(),
        },
        false => error,
    })?;
    console.file_notes(source.notes());
    let demo = match config.is_none() && demo::is_made_of(&*source) {
        true => Some(demo::config()?),
        false => None,
    };
    let mut inspected = Inspected::of(path, config.or(demo.as_ref()), &*source);
    let comparison = other.map(|other| Comparison::of(&*source, other, console));
    inspected.comparison = comparison.transpose()?;
    Ok(inspected)
}

impl Inspection {
    fn text(&self) -> String {
        let texts: Vec<_> = self.files.iter().map(Outcome::text).collect();
        texts.join("\n\n")
    }
}

impl Outcome {
    fn text(&self) -> String {
        match self {
            Self::Read(inspected) => inspected.text(),
            Self::Failed { file, error } => {
                format!("{}\n  not inspected: {error}", shown::message(file))
            }
        }
    }
}

impl Inspected {
    fn of(path: &Path, config: Option<&FluxConfigFile>, source: &dyn WeightSource) -> Self {
        Self {
            file: source.label(),
            model: Model::of(path, config, source),
            adapter: Adapter::of(path, source),
            metadata: source.metadata().clone(),
            tensors: Tensors::of(source),
            comparison: None,
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![shown::message(&self.file)];
        match (&self.model, &self.adapter) {
            (None, None) => lines.push("  neither a known model nor an adapter".into()),
            (model, adapter) => {
                lines.extend(model.as_ref().map(Model::text));
                lines.extend(adapter.as_ref().map(Adapter::text));
            }
        }
        for (key, value) in &self.metadata {
            let (key, value) = (shown::name(key), shown::message(&shortened(value)));
            lines.push(format!("  metadata {key}: {value}"));
        }
        lines.push(self.tensors.totals());
        lines.extend(self.comparison.as_ref().map(Comparison::text));
        lines.push(self.tensors.table());
        lines.join("\n")
    }
}

/// A value of the metadata on one line.
fn shortened(value: &str) -> String {
    let line = value.replace(['\n', '\r'], " ");
    match line.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Characters of a metadata value that are shown; training logs are long.
const MAX_VALUE_CHARS: usize = 100;
