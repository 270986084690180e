//! `merge`: adapters baked into a new checkpoint, tensor by tensor.

mod record;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Instant,
};

use burn::tensor::Device;
use overglaze_core::{FileLayer, FileLayers, FileMerge, Mounting, adapter_file};
use overglaze_models::{
    TensorShapes,
    families::{CatalogLayer, LayerCatalog},
};
use overglaze_patches::{AdapterConfig, PatchSet, files};
use serde::Serialize;

use crate::{
    CliError, Console, Exit,
    args::{GlobalArgs, MergeArgs},
    demo, device,
    lora_arg::{self, LoraArg},
    loras,
    output_file::{self, Contents, OutputFile},
    outputs, progress, shown, tensor_file,
};

use super::{JSON_VERSION, check::Fit};

/// The JSON document of a merge.
#[derive(Serialize)]
struct MergeReport {
    version: u32,
    model: String,
    /// The new checkpoint; left out where none was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<PathBuf>,
    loras: Vec<MergedLora>,
    tensors: usize,
    tensors_changed: usize,
    bytes: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct MergedLora {
    name: String,
    strength: f32,
    #[serde(flatten)]
    fit: Fit,
}

/// A LoRA that is read, under a name no other has.
struct Adapter<'a> {
    arg: &'a LoraArg,
    name: String,
    set: PatchSet,
}

pub(crate) fn run(
    args: &MergeArgs,
    flags: &GlobalArgs,
    console: &Console,
) -> Result<Exit, CliError> {
    let place = place(args)?;
    let device = match device::host() {
        Some(device) => device,
        None => device::resolve(flags.device)?,
    };
    let model = match &args.model {
        Some(path) => tensor_file::open(path)?,
        None => demo::weights()?,
    };
    console.file_notes(model.notes());
    let catalog = LayerCatalog::new(&TensorShapes::of(&*model))?;
    let adapters = adapters(&args.loras, &device)?;
    let sets: Vec<_> = adapters
        .iter()
        .map(|adapter| {
            let strengths = lora_arg::strengths(adapter.arg.strength, &args.block_strengths);
            Mounting::new(&adapter.name, &adapter.set, strengths)
        })
        .collect();
    let layer = |path: &str| catalog.layers().get(path).map(file_layer);
    let layers = FileLayers {
        names: catalog.names(),
        layer: &layer,
    };
    let merge = FileMerge::plan(&*model, layers, &sets, &device)?;
    let mut report = MergeReport::new(model.label(), &merge, &adapters);
    let is_refused = args.strict && report.loras.iter().any(|lora| lora.fit.keys_unmatched > 0);
    if !is_refused {
        let metadata =
            record::metadata(model.metadata(), &adapters, &args.block_strengths, &merge)?;
        let start = Instant::now();
        report.bytes = write(&merge, metadata, place, console)?;
        report.seconds = start.elapsed().as_secs_f64();
        report.output = Some(args.output.clone());
    }
    console.result(&report, || report.text(args.keys))?;
    Ok(if is_refused {
        Exit::DoesNotFit
    } else {
        Exit::Done
    })
}

/// The place of the output, begun beside it; no file that is read lies there.
fn place(args: &MergeArgs) -> Result<OutputFile, CliError> {
    output_file::check(&args.output, Contents::Checkpoint)?;
    let adapters = args.loras.iter().map(|lora| lora.path.as_path());
    let weights = args.model.as_deref().into_iter().chain(adapters);
    let inputs = outputs::inputs([].into_iter(), weights);
    outputs::refuse_inputs(&args.output, &inputs)?;
    OutputFile::create(&args.output)
}

fn file_layer(layer: &CatalogLayer) -> FileLayer {
    let CatalogLayer {
        weight,
        bias,
        shape,
    } = layer.clone();
    FileLayer {
        shape,
        weight,
        bias,
    }
}

fn adapters<'a>(args: &'a [LoraArg], device: &Device) -> Result<Vec<Adapter<'a>>, CliError> {
    let mut adapters: Vec<Adapter<'a>> = Vec::new();
    for (index, arg) in args.iter().enumerate() {
        loras::check_one(&arg.path)?;
        let set = adapter(&arg.path, device)?;
        let name = loras::name(&arg.path);
        // One file may be given twice; its strengths add up.
        let name = match adapters.iter().any(|other| other.name == name) {
            true => format!("{name} ({})", index + 1),
            false => name,
        };
        adapters.push(Adapter { arg, name, set });
    }
    Ok(adapters)
}

/// Reads the adapter at `path`, unless it is for weights stored the other way round than checkpoints have them.
fn adapter(path: &Path, device: &Device) -> Result<PatchSet, CliError> {
    let core = overglaze_core::Error::from;
    let files::AdapterFiles { weights, config } = files::locate(path).map_err(core)?;
    let source = tensor_file::open(&weights)?;
    let config = files::config_of(&weights, config, source.metadata()).map_err(core)?;
    if config
        .as_ref()
        .is_some_and(AdapterConfig::is_base_transposed)
    {
        return Err(CliError::NotAnAdapter {
            path: path.to_owned(),
            why: "for a model whose linear weights are stored as [d_input, d_output] (`fan_in_fan_out` in its \
                  configuration), and merging into such a checkpoint is not supported; leave it out",
        });
    }
    let name = files::set_name(path);
    Ok(adapter_file::from_source(&name, &*source, config, device)?)
}

/// Writes the checkpoint and returns the bytes of its tensors.
fn write(
    merge: &FileMerge<'_>,
    metadata: BTreeMap<String, String>,
    place: OutputFile,
    console: &Console,
) -> Result<u64, CliError> {
    let layout = merge.layout(place.path().display().to_string(), metadata)?;
    let bytes = layout.data_bytes();
    let bar = progress::bytes(console, bytes);
    bar.set_message("merging");
    place.fill(|file| {
        merge.write(layout, file, &mut |written| bar.set_position(written))?;
        bar.set_message("writing to disk");
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(bytes)
}

impl MergeReport {
    fn new(model: String, merge: &FileMerge<'_>, adapters: &[Adapter<'_>]) -> Self {
        let reports = merge.reports().iter().zip(adapters);
        let loras = reports.map(|(report, adapter)| MergedLora {
            name: loras::name(&adapter.arg.path),
            strength: adapter.arg.strength,
            fit: Fit::new(report.clone(), &adapter.set),
        });
        Self {
            version: JSON_VERSION,
            model,
            output: None,
            loras: loras.collect(),
            tensors: merge.num_tensors(),
            tensors_changed: merge.num_changed(),
            bytes: 0,
            seconds: 0.0,
        }
    }

    fn text(&self, has_all_keys: bool) -> String {
        let mut text = String::new();
        for lora in &self.loras {
            let name = shown::name(&lora.name);
            let label = format!("{name} at {}", shown::number(lora.strength));
            lora.fit.write(&label, has_all_keys, &mut text);
        }
        match &self.output {
            Some(path) => text.push_str(&self.summary(path)),
            None => text.push_str("nothing written: keys are left over, and --strict was given"),
        }
        text
    }

    fn summary(&self, path: &Path) -> String {
        let (changed, all) = (self.tensors_changed, self.tensors);
        let gigabytes = self.bytes as f64 / 1e9;
        let rate = gigabytes / self.seconds.max(1e-9);
        format!(
            "{changed} of {all} tensors changed, {gigabytes:.3} GB in {:.1} s ({rate:.2} GB/s)\nmodel: {}",
            self.seconds,
            shown::message(&path.to_string_lossy())
        )
    }
}
