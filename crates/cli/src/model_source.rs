//! The model a command runs: the embedded demo, or a checkpoint on disk.

use std::{path::Path, sync::Arc};

use burn::tensor::Device;
use overglaze_core::LoaderConfig;
use overglaze_models::{
    FluxConfigFile, FluxModel, SchedulerConfig, WordEmbedding, config_beside,
    flux::FluxLoadOptions, scheduler_beside,
};
use overglaze_quant::kernels::is_host;
use overglaze_stream::WeightSource;

use crate::{
    CliError, WeightMemory, args::GlobalArgs, demo, document, loras, tensor_file, weight_budget,
};

/// A model that is ready to run.
#[derive(Debug)]
pub struct LoadedModel {
    /// The network and its weights.
    pub flux: FluxModel,
    /// What to call it.
    pub label: String,
    /// The demo's words; other models have text encoders elsewhere.
    pub words: Option<WordEmbedding>,
    /// What is to be said of its file.
    pub notes: Vec<String>,
    /// The scheduler's configuration beside it.
    pub scheduler: Option<SchedulerConfig>,
    /// Where it runs.
    pub device: Device,
}

/// Where a model's tensors and documents come from.
#[derive(Clone, Debug)]
pub struct ModelFiles {
    /// The weights.
    pub source: Arc<dyn WeightSource>,
    /// Its config.json.
    pub config: Option<FluxConfigFile>,
}

impl LoadedModel {
    /// Loads the model at `path`, or the demo, on `device` under the budgets of `flags`.
    ///
    /// # Errors
    /// What is wrong with the files, or a budget that cannot hold the model's largest layer.
    pub fn load(
        path: Option<&Path>,
        config: Option<&Path>,
        device: &Device,
        flags: &GlobalArgs,
    ) -> Result<Self, CliError> {
        let files = ModelFiles::find(path, config)?;
        let words = match demo::is_made_of(&*files.source) {
            true => Some(demo::words()?),
            false => None,
        };
        let notes = files.source.notes().to_vec();
        let loader = loader_config(device, flags)?;
        let options = FluxLoadOptions {
            config: files.config,
            loader,
        };
        Ok(Self {
            flux: FluxModel::load(files.source, options)?,
            label: path.map_or_else(|| demo::NAME.into(), loras::name),
            words,
            notes,
            scheduler: path.map_or(Ok(None), scheduler_beside)?,
            device: device.clone(),
        })
    }

    /// Whether it is the embedded demo, or made of it.
    #[must_use]
    pub fn is_demo(&self) -> bool {
        self.words.is_some()
    }
}

impl ModelFiles {
    /// Opens the checkpoint at `path` with the given or neighbouring config.json, or the demo.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub fn find(path: Option<&Path>, config: Option<&Path>) -> Result<Self, CliError> {
        let Some(path) = path else {
            return Ok(Self {
                source: demo::weights()?,
                config: Some(demo::config()?),
            });
        };
        let source = tensor_file::open(path)?;
        let config = match config {
            Some(config) => Some(config_file(config)?),
            None if demo::is_made_of(&*source) => Some(demo::config()?),
            None => config_beside(path)?,
        };
        Ok(Self { source, config })
    }
}

/// Reads a config.json.
pub(crate) fn config_file(path: &Path) -> Result<FluxConfigFile, CliError> {
    Ok(FluxConfigFile::from_json(&document::read(
        path,
        document::MAX_TEXT_BYTES,
    )?)?)
}

fn loader_config(device: &Device, flags: &GlobalArgs) -> Result<LoaderConfig, CliError> {
    let memory = if is_host(device) {
        WeightMemory::Host
    } else {
        WeightMemory::Card
    };
    let budget = weight_budget(memory, flags.host_budget, flags.device_budget)?;
    Ok(match budget {
        Some(bytes) => LoaderConfig::streamed(device.clone(), bytes),
        None => LoaderConfig::resident(device.clone()),
    })
}
