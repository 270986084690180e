//! The command line: commands, flags and their help.

#![expect(
    clippy::doc_markdown,
    rustdoc::broken_intra_doc_links,
    reason = "the documentation is the help text, where backticks and escapes are noise"
)]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use overglaze_core::Placement;

use crate::{
    Budget,
    device::DeviceChoice,
    examples,
    lora_arg::{self, BlockStrength, LoraArg},
    sampling::MAX_SIDE,
};

/// Sweep LoRAs over one frozen base that stays where it is.
#[derive(Debug, Parser)]
#[command(name = "overglaze", version, after_help = examples::TOP, arg_required_else_help = true)]
pub struct Cli {
    /// Flags that every command takes.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Shared flags")]
pub struct GlobalArgs {
    /// Where the model runs: auto, cpu, flex, ndarray, cuda[:N] or vulkan[:N].
    ///
    /// `auto` is the first CUDA card where that is compiled in and there is one, else the CPU. The CPU is Flex
    /// where that is compiled in, else ndarray; `overglaze registry` lists what is.
    #[arg(long, global = true, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,
    /// Cap on host memory for weights: bytes, 8GiB, or a percentage of the free memory.
    ///
    /// On a CPU device the weights are in host memory, so the smaller of this and --device-budget holds. On a
    /// card it is refused: weights pass from the mapped file to the card, so none stay in host memory. A
    /// percentage is of the memory free when the command starts, and works on Linux.
    #[arg(long, global = true, value_name = "SIZE")]
    pub host_budget: Option<Budget>,
    /// Cap on weights in place on the device: bytes (3_000_000), 6GiB, or 50% of the free memory.
    ///
    /// Units: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB. Under a budget the model is streamed layer by layer; without
    /// one, the CPU reads the mapped file in place. The output is the same bit for bit. A percentage is of the
    /// memory free when the command starts; it works on a CPU device of Linux and is refused on a card, which
    /// does not tell its free memory: give bytes there.
    #[arg(long, global = true, value_name = "SIZE")]
    pub device_budget: Option<Budget>,
    /// Threads for the CPU's work, from 1 to four times the machine's cores; all cores by default.
    #[arg(long, global = true, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<u16>,
    /// Print one JSON document with "version": 1 instead of tables.
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress bars and no notes on stderr; errors only.
    #[arg(long, global = true)]
    pub quiet: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sample the same prompts and noise with each LoRA of a folder, on one contact sheet.
    Sweep(SweepArgs),
    /// Sample prompts with one set of LoRAs.
    Sample(SampleArgs),
    /// Say what is in a file: tensors, types, bits, shapes, model family, dialects and kinds.
    Inspect(InspectArgs),
    /// Check adapters against a model, key by key, without running it.
    Check(CheckArgs),
    /// Bake LoRAs into a new checkpoint.
    ///
    /// W' = W + the sum of each LoRA's strength times its residual, taken against the model as it is, summed in f32
    /// and rounded once to the type each tensor is stored in. Every other tensor is copied bit for bit, and the
    /// metadata are kept; `overglaze.merged` in them says what was merged. The model is read tensor by tensor, so
    /// memory holds little more than the largest one. A sharded model becomes one file, without config.json.
    Merge(MergeArgs),
    /// Pack a model's weights in fewer bits.
    ///
    /// Matrices in the middle of the network are packed; norms, biases, embeddings and the first and last layers stay
    /// as they are. What is packed and what is not is said before the work starts. The model is read weight by weight,
    /// so memory holds little more than the largest one.
    Quantize(QuantizeArgs),
    /// Decode a packed model to plain floats.
    Dequantize(DequantizeArgs),
    /// Rewrite any readable file as safetensors.
    ///
    /// Tensors go over bit for bit where safetensors has their type, and are decoded where it has none, as with the
    /// packed types of GGUF.
    Convert(ConvertArgs),
    /// List the patch kinds, formats, dialects and devices compiled in, and say what each kind is.
    Registry(RegistryArgs),
    /// Print a completion script for a shell.
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// Flags of `sweep`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::SWEEP)]
pub struct SweepArgs {
    /// What to sample.
    #[command(flatten)]
    pub scene: SceneArgs,
    /// Folder of LoRAs (.safetensors files and PEFT folders directly inside it), or a single one; the embedded
    /// outline epochs where --model is left out too.
    #[arg(long, value_name = "DIR")]
    pub loras: Option<PathBuf>,
    /// Strengths each LoRA is tried at: finite numbers, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = strength, allow_hyphen_values = true)]
    pub strengths: Vec<f32>,
    /// How the LoRAs are laid over the model.
    #[command(flatten)]
    pub laying: LayingArgs,
    /// The contact sheet.
    #[arg(short, long, value_name = "FILE", default_value = "sheet.png")]
    pub output: PathBuf,
}

/// Flags of `sample`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::SAMPLE)]
pub struct SampleArgs {
    /// What to sample.
    #[command(flatten)]
    pub scene: SceneArgs,
    /// A LoRA to lay over the model, with its strength (1 where none is given); may be repeated.
    ///
    /// What follows the last colon is a strength when it is a number and the path without it is there.
    #[arg(long = "lora", value_name = "FILE[:STRENGTH]")]
    pub loras: Vec<LoraArg>,
    /// How the LoRAs are laid over the model.
    #[command(flatten)]
    pub laying: LayingArgs,
    /// The picture: one image a prompt, side by side.
    #[arg(short, long, value_name = "FILE", default_value = "out.png")]
    pub output: PathBuf,
}

/// How LoRAs are laid over a model, for `sweep` and `sample` alike.
#[derive(Clone, Debug, Default, Args)]
pub struct LayingArgs {
    /// A factor on the strength of every LoRA on the layers whose name in the model, with dots or underscores, matches
    /// PATTERN, in which * stands for any characters; may be repeated, and the last that matches counts.
    #[arg(
        long = "block-strength",
        value_name = "PATTERN=FACTOR",
        allow_hyphen_values = true
    )]
    pub block_strengths: Vec<BlockStrength>,
    /// sidecar: beside the weights, which nothing changes. direct: into a copy of them, as fast as without a LoRA,
    /// rounded to their type, not under a budget. auto: direct where the weights are in place and of a float type.
    #[arg(long, value_name = "PLACEMENT", default_value = "sidecar", value_parser = lora_arg::placement())]
    pub placement: Placement,
}

/// What to sample, for `sweep` and `sample` alike.
#[derive(Clone, Debug, Args)]
pub struct SceneArgs {
    /// A FLUX.1 checkpoint: a diffusers folder, or one file in diffusers or BFL naming; the embedded demo where
    /// it is left out.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// The model's config.json, where it does not lie beside the weights.
    #[arg(long, value_name = "FILE", requires = "model")]
    pub config: Option<PathBuf>,
    /// A prompt (a word of the demo); may be repeated. All ten words where none is given.
    #[arg(long = "prompt", value_name = "TEXT", conflicts_with_all = ["prompts_file", "conditioning"])]
    pub prompts: Vec<String>,
    /// A text file with one prompt a line.
    #[arg(
        long = "prompts",
        id = "prompts_file",
        value_name = "FILE",
        conflicts_with = "conditioning"
    )]
    pub prompts_file: Option<PathBuf>,
    /// What the text encoders say, as safetensors: encoder_hidden_states [prompts, tokens, width],
    /// pooled_projections [prompts, width], optional guidance [prompts].
    #[arg(long, value_name = "FILE")]
    pub conditioning: Option<PathBuf>,
    /// Seed of the noise; prompt i starts from the noise of SEED + i. Not PyTorch's generator: the same seed
    /// gives other pictures there.
    ///
    /// From 0 to 18446744073709551615, after which it goes on from 0.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "noise", value_parser = seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Euler steps, from 1 to 1000; 20 by default, 4 for a model without guidance embedding (FLUX.1-schnell).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000), allow_negative_numbers = true)]
    pub steps: Option<u16>,
    /// Size of the images in pixels, multiples of 16 from 16 to 16384; the demo has one size. [default: 1024x1024]
    #[arg(long, value_name = "WxH", value_parser = size)]
    pub size: Option<[usize; 2]>,
    /// Guidance, for models that embed it; goes before the conditioning file's. [default: 3.5]
    #[arg(long, value_name = "G", value_parser = finite, allow_negative_numbers = true)]
    pub guidance: Option<f32>,
    /// Shift of the noise levels: auto (the scheduler's config beside the model, else FLUX.1's rule), none, or
    /// mu from -20 to 20.
    #[arg(
        long,
        value_name = "auto|none|MU",
        default_value = "auto",
        allow_hyphen_values = true
    )]
    pub shift: overglaze_models::Shift,
    /// Start from this noise instead of the seed's: safetensors with `in.noise`, or with one tensor,
    /// [prompts, tokens, channels].
    #[arg(long, value_name = "FILE")]
    pub noise: Option<PathBuf>,
    /// Save the results as safetensors, [prompts, tokens, channels] in f32 for each column.
    ///
    /// `sample` saves one tensor, `latents`. `sweep` saves `no_lora` and then a tensor a column under the column's
    /// label: the LoRA's file name without extension (the whole name where that is taken, with a number behind it
    /// where that is taken too), and ` @STRENGTH` behind it unless 1 is the only strength. With --json, `latents`
    /// says which tensor belongs to which column.
    #[arg(long, value_name = "FILE")]
    pub save_latents: Option<PathBuf>,
}

/// Flags of `inspect`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::INSPECT)]
pub struct InspectArgs {
    /// Files or folders.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The model's config.json, where it does not lie beside the weights.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Compare names, shapes and values with this file.
    ///
    /// Packed weights are decoded for it: the error of quantizing is the difference to the file they were made from.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
}

/// Flags of `check`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::CHECK)]
pub struct CheckArgs {
    /// Adapters: .safetensors files, PEFT folders, folders of them, or an adapter's keys and shapes as JSON.
    #[arg(required_unless_present = "keys", value_name = "ADAPTER")]
    pub adapters: Vec<PathBuf>,
    /// The model; the embedded demo where neither it nor --model-keys is given.
    #[arg(long, value_name = "MODEL", conflicts_with = "model_keys")]
    pub model: Option<PathBuf>,
    /// The model's keys and shapes as JSON: {"key": [shape]}, of any model, whole checkpoints included.
    #[arg(long, value_name = "FILE")]
    pub model_keys: Option<PathBuf>,
    /// List every key, not only those that do not fit; FILE is an adapter like those named alone.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub keys: Option<Option<PathBuf>>,
    /// Fail (exit 3) where any key is left over.
    #[arg(long)]
    pub strict: bool,
}

/// Flags of `merge`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::MERGE)]
pub struct MergeArgs {
    /// The model: a safetensors file, the index of a sharded one, or a folder; the embedded demo where it is left
    /// out.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// A LoRA to bake in, with its strength (1 where none is given); may be repeated.
    ///
    /// What follows the last colon is a strength when it is a number and the path without it is there.
    #[arg(long = "lora", required = true, value_name = "FILE[:STRENGTH]")]
    pub loras: Vec<LoraArg>,
    /// A factor on the strength of every LoRA on the layers whose name in the model, with dots or underscores, matches
    /// PATTERN, in which * stands for any characters; may be repeated, and the last that matches counts.
    #[arg(
        long = "block-strength",
        value_name = "PATTERN=FACTOR",
        allow_hyphen_values = true
    )]
    pub block_strengths: Vec<BlockStrength>,
    /// The new checkpoint, a .safetensors file; it appears when it is whole.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// List every key, not only those that do not fit.
    #[arg(long)]
    pub keys: bool,
    /// Write nothing (exit 3) where any key is left over.
    #[arg(long)]
    pub strict: bool,
}

/// Flags of `registry`.
#[derive(Clone, Debug, Args)]
#[command(after_help = examples::REGISTRY)]
pub struct RegistryArgs {
    /// Print a page of Markdown on the patch kinds, as docs/kinds.md is.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

mod rewriting;

pub use rewriting::{ConvertArgs, DequantizeArgs, FloatType, QuantizeArgs};

fn size(text: &str) -> Result<[usize; 2], String> {
    const EXPECTED: &str = "expected WIDTHxHEIGHT in pixels, multiples of 16, such as 1024x768";
    let (width, height) = text.split_once(['x', 'X']).ok_or(EXPECTED)?;
    let side = |side: &str| side.parse::<usize>().map_err(|_| EXPECTED.to_owned());
    let size = [side(width)?, side(height)?];
    match size
        .iter()
        .all(|side| (16..=MAX_SIDE).contains(side) && side.is_multiple_of(16))
    {
        true => Ok(size),
        false => Err(format!("{EXPECTED}; each side from 16 to 16384")),
    }
}

fn threads(text: &str) -> Result<u16, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = u16::try_from(4 * cores).unwrap_or(u16::MAX);
    match text.parse() {
        Ok(threads) if (1..=most).contains(&threads) => Ok(threads),
        _ => Err(format!(
            "{text} is not in 1..={most}, four times the machine's {cores} cores"
        )),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    let refuse = |_| format!("{text} is not a whole number in 0..={}", u64::MAX);
    text.parse().map_err(refuse)
}

fn strength(text: &str) -> Result<f32, String> {
    finite(text.trim())
}

fn finite(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err("expected a finite number".into()),
    }
}
