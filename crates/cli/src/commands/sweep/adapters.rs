//! The adapters of a sweep: read, named, and tried on before anything is sampled.

use std::{collections::BTreeSet, path::Path};

use overglaze_core::{Error, MountReport, adapter_file, mount, unmount};
use overglaze_models::FluxTransformer;
use overglaze_patches::PatchSet;

use crate::{
    CliError, args::SweepArgs, commands::check::Fit, demo, device, exit::sentence, loras,
    loras::Skipped, model_source::LoadedModel,
};

/// An adapter that fits.
#[derive(Debug)]
pub(super) struct Adapter {
    /// What to call it; no two have the same name.
    pub(super) name: String,
    pub(super) set: PatchSet,
    /// What is to be said of it as a whole.
    pub(super) notes: Vec<String>,
}

/// Adapters in the order of their columns, and what was left out.
#[derive(Debug, Default)]
pub(super) struct Adapters {
    pub(super) fitting: Vec<Adapter>,
    pub(super) skipped: Vec<Skipped>,
    /// Of those skipped, how many are adapters that were tried.
    refused: usize,
    /// Of those, how many could not even be read.
    unreadable: usize,
    /// The first of them and why.
    first: Option<(String, CliError)>,
}

impl Adapters {
    /// Reads every adapter the flags name and tries it on `model`, which stays as it is.
    pub(super) fn find(args: &SweepArgs, model: &LoadedModel) -> Result<Self, CliError> {
        let mut adapters = Self::default();
        // Patches go to the execution device when they are first used there.
        let device = device::host().unwrap_or_else(|| model.device.clone());
        let network = &model.flux.transformer;
        match &args.loras {
            Some(path) => adapters.read(&loras::list(path)?, network, &device),
            None if model.is_demo() => {
                for (index, name) in demo::LORA_NAMES.into_iter().enumerate() {
                    adapters.keep(name.into(), demo::lora(index, &device), network);
                }
            }
            None => return Err(CliError::NoLoras(LORAS_NEEDED)),
        }
        adapters.check()
    }

    fn read(
        &mut self,
        listing: &loras::Listing,
        network: &FluxTransformer,
        device: &burn::tensor::Device,
    ) {
        self.skipped.extend(listing.skipped.iter().cloned());
        let names = names(&listing.adapters);
        for (path, name) in listing.adapters.iter().zip(names) {
            let set = adapter_file::load(path, device).map_err(CliError::from);
            self.keep(name, set, network);
        }
    }

    /// Keeps the adapter, or its reason for not being kept.
    fn keep(&mut self, name: String, set: Result<PatchSet, CliError>, network: &FluxTransformer) {
        let fitting = match set {
            Ok(set) => match try_on(&name, &set, network) {
                Ok(report) => Ok((Fit::notes(&report, &set), set)),
                Err(error) => Err(CliError::from(error)),
            },
            Err(error) => {
                self.unreadable += 1;
                Err(error)
            }
        };
        match fitting {
            Ok((notes, set)) => self.fitting.push(Adapter { name, set, notes }),
            Err(error) => {
                self.refused += 1;
                self.skipped.push(Skipped {
                    name: name.clone(),
                    reason: sentence(&error),
                });
                self.first.get_or_insert((name, error));
            }
        }
    }

    /// An error where nothing is left to sweep: the adapter's own where it is the only one.
    fn check(self) -> Result<Self, CliError> {
        let (Some((name, error)), true) = (&self.first, self.fitting.is_empty()) else {
            return Ok(self);
        };
        let (count, first) = (self.refused, format!("`{name}`: {}", sentence(error)));
        Err(match (self.first, count) {
            (Some((_, error)), 1) => error,
            _ if self.unreadable == count => CliError::NothingRead { count, first },
            _ => CliError::NothingFits { count, first },
        })
    }
}

/// Mounts on a clone, which shares the weights and has patches of its own.
fn try_on(name: &str, set: &PatchSet, network: &FluxTransformer) -> Result<MountReport, Error> {
    let mut trial = network.clone();
    let report = mount(&mut trial, name, set, 1.0)?;
    unmount(&mut trial, name)?;
    Ok(report)
}

/// Names without extension, whole file names where those are taken, and numbers behind them where those are too.
///
/// They name tensors of a file of latents as well, where `__metadata__` is no tensor's name.
fn names(paths: &[std::path::PathBuf]) -> Vec<String> {
    let mut taken = BTreeSet::from([super::NO_LORA, METADATA].map(String::from));
    paths
        .iter()
        .map(|path| {
            let whole = loras::name(path);
            let numbered = (2..).map(|number| format!("{whole} ({number})"));
            let mut names = [stem(path), whole.clone()].into_iter().chain(numbered);
            let free = names.find(|name| taken.insert(name.clone()));
            free.expect("there are more numbers than paths")
        })
        .collect()
}

fn stem(path: &Path) -> String {
    match path.file_stem() {
        Some(stem) if path.is_file() => stem.to_string_lossy().into_owned(),
        _ => loras::name(path),
    }
}

/// The entry of a safetensors header that is no tensor.
const METADATA: &str = "__metadata__";

const LORAS_NEEDED: &str =
    "--model needs --loras DIR: the embedded LoRAs fit the embedded demo only";
