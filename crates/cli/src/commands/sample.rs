//! `sample`: prompts with one set of adapters, side by side in one picture.

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use overglaze_core::{Mounting, Placement, adapter_file, swap};
use serde::Serialize;

use crate::{
    CliError, Console, Exit, Latents, Residency,
    args::{GlobalArgs, SampleArgs},
    device,
    lora_arg::{self, LoraArg},
    loras,
    model_source::LoadedModel,
    outputs::Outputs,
    pictures::{check_size, pictures},
    progress,
    sampling::{Sampled, Scene, noise_origin, num_steps},
    sheet::{Sheet, SheetColumn, write_png},
    shown, table,
    tensor_file::write_latents,
};

use super::{JSON_VERSION, check::Fit, sweep::microseconds};

/// The JSON document of a sample.
#[derive(Clone, Debug, Serialize)]
pub struct SampleReport {
    /// Version of the document.
    pub version: u32,
    /// The picture.
    pub picture: PathBuf,
    /// What was laid over the model.
    pub loras: Vec<SampleLora>,
    /// Seconds of sampling an image.
    pub seconds_per_image: f64,
    /// Where the weights were.
    pub residency: Residency,
}

/// A LoRA of a sample.
#[derive(Clone, Debug, Serialize)]
pub struct SampleLora {
    /// Its file.
    pub name: String,
    /// Its strength.
    pub strength: f32,
    /// Keys of its file that have an effect.
    pub keys_applied: usize,
    /// Keys that have none.
    pub keys_unmatched: usize,
    /// Microseconds to mount it.
    pub mount_us: f64,
    /// What is to be said of it as a whole; left out where nothing is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Runs the command and prints its report.
pub(crate) fn run(
    args: &SampleArgs,
    flags: &GlobalArgs,
    console: &Console,
) -> Result<Exit, CliError> {
    let (_, report) = sample(args, flags, console)?;
    console.result(&report, || report.text())?;
    Ok(Exit::Done)
}

/// Samples and writes the files that were asked for; prints nothing but progress.
///
/// # Errors
/// What is wrong with a flag, a file or the device, a LoRA that does not fit, or [`CliError::NotFinite`]; then nothing
/// is written.
pub fn sample(
    args: &SampleArgs,
    flags: &GlobalArgs,
    console: &Console,
) -> Result<(Latents, SampleReport), CliError> {
    let adapters: Vec<_> = args.loras.iter().map(|lora| lora.path.as_path()).collect();
    check_laying(args)?;
    let outputs = Outputs::plan(&args.output, &args.scene, &adapters)?;
    let device = device::resolve(flags.device)?;
    let (path, config) = (args.scene.model.as_deref(), args.scene.config.as_deref());
    let mut model = LoadedModel::load(path, config, &device, flags)?;
    console.file_notes(&model.notes);
    let scene = Scene::new(&args.scene, &model, console)?;
    let labels: Vec<_> = scene.prompts.labels.iter().map(String::as_str).collect();
    check_size(&model, &scene, &labels, &[String::new()])?;
    let loras = mount_all(args, &mut model)?;
    for lora in &loras {
        console.notes(&lora.name, &lora.notes);
    }
    let bar = progress::steps(console, scene.num_steps());
    let Sampled {
        latents,
        seconds_per_image,
    } = scene.sample(&model.flux.transformer, &bar)?;
    bar.finish_and_clear();
    if !latents.is_finite() {
        return Err(CliError::NotFinite {
            names: "the sample".into(),
        });
    }
    if let Some(place) = outputs.latents {
        write_latents(place, &[(LATENTS, &latents)], &metadata(args, &model))?;
    }
    write_png(
        outputs.picture,
        &row(args, &model, &scene, &latents)?.draw()?,
    )?;
    let report = SampleReport {
        version: JSON_VERSION,
        picture: args.output.clone(),
        loras,
        seconds_per_image,
        residency: Residency::of(&model.flux.base),
    };
    Ok((latents, report))
}

/// Refuses flags on how adapters are laid where there are none.
fn check_laying(args: &SampleArgs) -> Result<(), CliError> {
    let flag = match &args.laying {
        laying if !laying.block_strengths.is_empty() => "--block-strength",
        laying if laying.placement != Placement::Sidecar => "--placement",
        _ => return Ok(()),
    };
    if !args.loras.is_empty() {
        return Ok(());
    }
    Err(CliError::SettingUnused {
        flag,
        to: "a sample without LoRAs".into(),
        why: "name one with --lora, or leave it out",
    })
}

fn mount_all(args: &SampleArgs, model: &mut LoadedModel) -> Result<Vec<SampleLora>, CliError> {
    let device = device::host().unwrap_or_else(|| model.device.clone());
    let mut mounted = Vec::new();
    for (index, lora) in args.loras.iter().enumerate() {
        loras::check_one(&lora.path)?;
        let set = adapter_file::load(&lora.path, &device)?;
        let name = loras::name(&lora.path);
        // One file may be given twice; its strengths add up.
        let is_taken = mounted.iter().any(|other: &SampleLora| other.name == name);
        let adapter = match is_taken {
            true => format!("{name} ({})", index + 1),
            false => name.clone(),
        };
        let start = Instant::now();
        let strengths = lora_arg::strengths(lora.strength, &args.laying.block_strengths);
        let mounting = Mounting::new(&adapter, &set, strengths);
        let mounting = mounting.with_placement(args.laying.placement);
        let mut reports =
            swap(&mut model.flux.transformer, &[], &[mounting]).map_err(lora_arg::not_laid)?;
        let mount_us = microseconds(start.elapsed());
        let report = reports.pop().expect("one set in, one report out");
        mounted.push(SampleLora {
            name,
            strength: lora.strength,
            keys_applied: report.keys_applied(),
            keys_unmatched: report.keys_unmatched(),
            mount_us,
            notes: Fit::notes(&report, &set),
        });
    }
    Ok(mounted)
}

/// A sheet of one row, with the prompts above the pictures.
fn row(
    args: &SampleArgs,
    model: &LoadedModel,
    scene: &Scene,
    latents: &Latents,
) -> Result<Sheet, CliError> {
    let columns = pictures(model, scene, vec![String::new()], &[latents])?;
    let cells = columns.into_iter().flat_map(|column| column.cells);
    let labelled = scene.prompts.labels.iter().zip(cells);
    let preview = if model.is_demo() {
        ""
    } else {
        ", latent preview (not decoded)"
    };
    let (steps, (origin, noise)) = (num_steps(&args.scene, model), noise_origin(&args.scene));
    Ok(Sheet {
        title: format!("{}, {steps} steps, {origin} {noise}{preview}", model.label),
        columns: labelled
            .map(|(label, cell)| SheetColumn {
                label: label.clone(),
                cells: vec![cell],
            })
            .collect(),
        rows: vec![String::new()],
    })
}

fn metadata(args: &SampleArgs, model: &LoadedModel) -> BTreeMap<&'static str, String> {
    let lora = |lora: &LoraArg| {
        format!(
            "{}:{}",
            loras::name(&lora.path),
            shown::number(lora.strength)
        )
    };
    let loras: Vec<_> = args.loras.iter().map(lora).collect();
    BTreeMap::from([
        ("model", model.label.clone()),
        noise_origin(&args.scene),
        ("steps", num_steps(&args.scene, model).to_string()),
        ("loras", loras.join(",")),
    ])
}

impl SampleReport {
    fn text(&self) -> String {
        let rows: Vec<_> = self.loras.iter().map(SampleLora::row).collect();
        let header = ["LoRA", "strength", "keys applied / left over", "mount µs"];
        let loras = match rows.is_empty() {
            true => "no LoRA".into(),
            false => table::of_numbers(&header, &rows),
        };
        format!(
            "{loras}\n{:.3} s/image\n{}\npicture: {}",
            self.seconds_per_image,
            self.residency.describe(),
            self.picture.display()
        )
    }
}

impl SampleLora {
    fn row(&self) -> Vec<String> {
        let keys = format!("{} / {}", self.keys_applied, self.keys_unmatched);
        vec![
            self.name.clone(),
            shown::number(self.strength),
            keys,
            format!("{:.0}", self.mount_us),
        ]
    }
}

/// The one tensor of a file of latents.
const LATENTS: &str = "latents";
