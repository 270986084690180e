//! `inspect`: what is in a file.

mod adapter;
mod comparison;
mod model;
mod tensors;

use std::{collections::BTreeMap, path::Path};

use overglaze_models::FluxConfigFile;
use overglaze_stream::WeightSource;
use serde::Serialize;

use crate::{
    CliError, Console, Exit, args::InspectArgs, model_source::config_file, tensor_file::open,
};

use super::JSON_VERSION;

use self::{adapter::Adapter, comparison::Comparison, model::Model, tensors::Tensors};

#[derive(Serialize)]
struct Inspection {
    version: u32,
    files: Vec<Inspected>,
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
    let mut files = Vec::new();
    for path in &args.files {
        let source = open(path)?;
        let mut inspected = Inspected::of(path, config.as_ref(), &*source);
        inspected.comparison = other
            .as_deref()
            .map(|other| Comparison::of(&*source, other));
        files.push(inspected);
    }
    let inspection = Inspection {
        version: JSON_VERSION,
        files,
    };
    console.result(&inspection, || {
        inspection
            .files
            .iter()
            .map(Inspected::text)
            .collect::<Vec<_>>()
            .join("\n\n")
    })?;
    Ok(Exit::Done)
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
        let mut lines = vec![self.file.clone()];
        match (&self.model, &self.adapter) {
            (None, None) => lines.push("  neither a known model nor an adapter".into()),
            (model, adapter) => {
                lines.extend(model.as_ref().map(Model::text));
                lines.extend(adapter.as_ref().map(Adapter::text));
            }
        }
        for (key, value) in &self.metadata {
            lines.push(format!("  metadata {key}: {}", shortened(value)));
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
