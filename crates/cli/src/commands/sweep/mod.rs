//! `sweep`: the same prompts and noise with each LoRA of a folder, on one contact sheet.
//!
//! The base is hashed and sampled first and last; whatever was mounted in between, both must come out the same.

mod adapters;
mod columns;
mod report;

use std::collections::BTreeMap;

use overglaze_core::{
    Placement,
    fingerprint::{Fingerprint, fingerprint},
    swap,
};

use crate::{
    CliError, Console, Exit, Latents, Residency,
    args::{GlobalArgs, LayingArgs, SweepArgs},
    device, lora_arg,
    model_source::LoadedModel,
    outputs::Outputs,
    pictures::{check_size, pictures},
    progress,
    restoration::{BaseState, Restoration},
    sampling::{Sampled, Scene, noise_origin, num_steps},
    sheet::{Sheet, write_png},
    shown,
    tensor_file::write_latents,
};

use adapters::{Adapter, Adapters};
pub use columns::Column;
pub(super) use columns::microseconds;
pub use report::{LoraReport, SweepReport};

/// Everything a sweep found.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Results without any LoRA.
    pub base: Latents,
    /// Results with each LoRA, in order.
    pub columns: Vec<Column>,
    /// The contact sheet, before it is drawn.
    pub sheet: Sheet,
    /// What became of the base.
    pub restoration: Restoration,
    /// What is printed with `--json`.
    pub report: SweepReport,
    base_seconds_per_image: f64,
    fingerprint: Fingerprint,
}

impl Sweep {
    /// How the run ends.
    ///
    /// # Errors
    /// [`CliError::BaseChanged`] where the base is not what it was, [`CliError::NotFinite`] where a result
    /// is not all numbers.
    pub fn check(&self) -> Result<Exit, CliError> {
        match self.restoration.difference() {
            None => check_finite(&self.report.non_finite),
            Some(what) => Err(CliError::BaseChanged { what }),
        }
    }
}

/// Runs the command and prints its report.
pub(crate) fn run(
    args: &SweepArgs,
    flags: &GlobalArgs,
    console: &Console,
) -> Result<Exit, CliError> {
    let sweep = sweep(args, flags, console)?;
    let hash = sweep.fingerprint.to_hex();
    console.result(&sweep.report, || {
        sweep.report.text(sweep.base_seconds_per_image, &hash)
    })?;
    sweep.check()
}

/// Sweeps and writes the files that were asked for; prints nothing but progress.
///
/// # Errors
/// What is wrong with a flag, a file or the device; [`CliError::NothingFits`] where no LoRA fits.
pub fn sweep(args: &SweepArgs, flags: &GlobalArgs, console: &Console) -> Result<Sweep, CliError> {
    // A wrong output path is told before a model is read.
    let outputs = plan_outputs(args)?;
    let device = device::resolve(flags.device)?;
    let (path, config) = (args.scene.model.as_deref(), args.scene.config.as_deref());
    let model = LoadedModel::load(path, config, &device, flags)?;
    console.file_notes(&model.notes);
    sweep_into(outputs, model, args, console)
}

/// [`sweep`] over a model that is loaded already.
///
/// # Errors
/// As [`sweep`].
pub fn sweep_model(
    model: LoadedModel,
    args: &SweepArgs,
    console: &Console,
) -> Result<Sweep, CliError> {
    sweep_into(plan_outputs(args)?, model, args, console)
}

fn sweep_into(
    outputs: Outputs,
    mut model: LoadedModel,
    args: &SweepArgs,
    console: &Console,
) -> Result<Sweep, CliError> {
    let scene = Scene::new(&args.scene, &model, console)?;
    let found = Adapters::find(args, &model)?;
    check_laying(&model, &found.fitting, &args.laying)?;
    for adapter in &found.fitting {
        console.notes(&adapter.name, &adapter.notes);
    }
    let plan = plan(&found.fitting, &strengths(args));
    let labels = plan.iter().map(|(.., label)| label.as_str());
    let labels: Vec<_> = [NO_LORA_LABEL].into_iter().chain(labels).collect();
    check_size(&model, &scene, &labels, &scene.prompts.labels)?;
    let before = hash(&model, console)?;
    let num_samplings = plan.len() as u64 + 2;
    let bar = progress::steps(console, scene.num_steps() * num_samplings);
    bar.set_message(NO_LORA_LABEL);
    let base = scene.sample(&model.flux.transformer, &bar)?;
    let mut columns = Vec::new();
    for (adapter, strength, label) in plan {
        bar.set_message(shown::name(&label));
        let tried = (adapter, strength, &args.laying);
        columns.push(columns::sample_with(
            tried, label, &mut model, &scene, &bar,
        )?);
    }
    bar.set_message("no LoRA, again");
    let again = scene.sample(&model.flux.transformer, &bar)?;
    bar.finish_and_clear();
    let after = hash(&model, console)?;

    let restoration = restoration(&base, before, again, after);
    let sheet = sheet(args, &model, &scene, (&base.latents, &columns))?;
    let has_latents = outputs.latents.is_some();
    write(
        outputs,
        &sheet,
        (&base.latents, &columns),
        &metadata(args, &model),
    )?;
    let residency = Residency::of(&model.flux.base);
    let lines = columns.iter().map(|column| column.report.clone()).collect();
    let rest = (residency, found.skipped);
    let mut report = SweepReport::new(args.output.clone(), lines, restoration, rest);
    report.non_finite = non_finite(&base.latents, &columns);
    report.latents = has_latents.then(|| tensor_names(&columns));
    Ok(Sweep {
        report,
        base: base.latents,
        columns,
        sheet,
        restoration,
        base_seconds_per_image: base.seconds_per_image,
        fingerprint: before,
    })
}

/// That the adapters can be laid over the model as `laying` says; tried on a copy, before the work starts.
fn check_laying(
    model: &LoadedModel,
    adapters: &[Adapter],
    laying: &LayingArgs,
) -> Result<(), CliError> {
    let is_plain = laying.block_strengths.is_empty() && laying.placement == Placement::Sidecar;
    let Some(first) = adapters.first().filter(|_| !is_plain) else {
        return Ok(());
    };
    let mounting = columns::mounting(first, 1.0, laying);
    swap(&mut model.flux.transformer.clone(), &[], &[mounting]).map_err(lora_arg::not_laid)?;
    Ok(())
}

/// Where the results go; looked at before the work starts.
fn plan_outputs(args: &SweepArgs) -> Result<Outputs, CliError> {
    let adapters: Vec<_> = args.loras.as_deref().into_iter().collect();
    Outputs::plan(&args.output, &args.scene, &adapters)
}

fn write(
    outputs: Outputs,
    sheet: &Sheet,
    (base, columns): (&Latents, &[Column]),
    metadata: &BTreeMap<&str, String>,
) -> Result<(), CliError> {
    if let Some(place) = outputs.latents {
        let mut tensors = vec![(NO_LORA, base)];
        tensors.extend(
            columns
                .iter()
                .map(|column| (column.label.as_str(), &column.latents)),
        );
        write_latents(place, &tensors, metadata)?;
    }
    write_png(outputs.picture, &sheet.draw()?)
}

/// Labels of the columns that hold anything but finite numbers.
fn non_finite(base: &Latents, columns: &[Column]) -> Vec<String> {
    let columns = columns
        .iter()
        .map(|column| (column.label.as_str(), &column.latents));
    [(NO_LORA_LABEL, base)]
        .into_iter()
        .chain(columns)
        .filter(|(_, latents)| !latents.is_finite())
        .map(|(label, _)| label.to_owned())
        .collect()
}

/// An error that names the columns whose results are not all finite numbers.
fn check_finite(names: &[String]) -> Result<Exit, CliError> {
    if names.is_empty() {
        return Ok(Exit::Done);
    }
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    let names = names.join(", ");
    Err(CliError::NotFinite { names })
}

/// The tensor of each column in a file of latents.
fn tensor_names(columns: &[Column]) -> BTreeMap<String, String> {
    let same = |column: &Column| (column.label.clone(), column.label.clone());
    let base = (NO_LORA_LABEL.to_owned(), NO_LORA.to_owned());
    [base].into_iter().chain(columns.iter().map(same)).collect()
}

/// Every adapter at every strength, with the label of its column.
fn plan<'a>(adapters: &'a [Adapter], strengths: &[f32]) -> Vec<(&'a Adapter, f32, String)> {
    let label = |adapter: &Adapter, strength: f32| match strengths {
        [_] if strength == 1.0 => adapter.name.clone(),
        _ => format!("{} @{}", adapter.name, shown::number(strength)),
    };
    adapters
        .iter()
        .flat_map(|adapter| strengths.iter().map(move |strength| (adapter, *strength)))
        .map(|(adapter, strength)| (adapter, strength, label(adapter, strength)))
        .collect()
}

/// The strengths that were asked for, each once.
fn strengths(args: &SweepArgs) -> Vec<f32> {
    let mut strengths: Vec<f32> = Vec::new();
    for strength in &args.strengths {
        if !strengths.contains(strength) {
            strengths.push(*strength);
        }
    }
    strengths
}

fn hash(model: &LoadedModel, console: &Console) -> Result<Fingerprint, CliError> {
    let bar = progress::bytes(console, model.flux.base.num_bytes);
    bar.set_message("hashing the base");
    let hash = fingerprint(&model.flux.transformer, &mut |read| bar.set_position(read))?;
    bar.finish_and_clear();
    Ok(hash)
}

fn restoration(
    base: &Sampled,
    before: Fingerprint,
    again: Sampled,
    after: Fingerprint,
) -> Restoration {
    let before = BaseState {
        fingerprint: before,
        output: base.latents.clone(),
    };
    let after = BaseState {
        fingerprint: after,
        output: again.latents,
    };
    Restoration::between(&before, &after)
}

fn sheet(
    args: &SweepArgs,
    model: &LoadedModel,
    scene: &Scene,
    (base, columns): (&Latents, &[Column]),
) -> Result<Sheet, CliError> {
    let mut labels = vec![NO_LORA_LABEL.to_owned()];
    labels.extend(columns.iter().map(|column| column.label.clone()));
    let mut results = vec![base];
    results.extend(columns.iter().map(|column| &column.latents));
    let preview = if model.is_demo() {
        ""
    } else {
        ", latent preview (not decoded)"
    };
    let (steps, (origin, noise)) = (num_steps(&args.scene, model), noise_origin(&args.scene));
    let title = format!("{}, {steps} steps, {origin} {noise}{preview}", model.label);
    let columns = pictures(model, scene, labels, &results)?;
    Ok(Sheet {
        title,
        columns,
        rows: scene.prompts.labels.clone(),
    })
}

/// What a file of latents says of how they were made.
fn metadata(args: &SweepArgs, model: &LoadedModel) -> BTreeMap<&'static str, String> {
    let strengths: Vec<_> = strengths(args).into_iter().map(shown::number).collect();
    BTreeMap::from([
        ("model", model.label.clone()),
        noise_origin(&args.scene),
        ("steps", num_steps(&args.scene, model).to_string()),
        ("strengths", strengths.join(",")),
    ])
}

/// What stands above the first column.
const NO_LORA_LABEL: &str = "no LoRA";

/// Name of the first column in a file of latents.
const NO_LORA: &str = "no_lora";
