//! What can go wrong on the command line, one sentence each.

use std::{io, path::PathBuf};

use overglaze_models::ModelError;
use overglaze_stream::StreamError;

use crate::commands::RewriteError;

/// Errors of this crate. Each message names what was found, what was expected and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// A layer or an adapter failed.
    #[error(transparent)]
    Core(#[from] overglaze_core::Error),
    /// A model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A weight file failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A model could not be rewritten.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// A device that is known is not part of this binary.
    #[error(
        "the device `{device}` is not compiled in (this binary has: {compiled}); build it with \
         `cargo build --release -p overglaze-cli --features {feature}`"
    )]
    DeviceNotCompiled {
        /// What was asked for.
        device: String,
        /// Devices of this binary.
        compiled: String,
        /// Cargo feature that adds it.
        feature: &'static str,
    },
    /// No execution device at all is part of this binary.
    #[error(
        "no execution device is compiled in; build with one of the features flex, ndarray, cuda or vulkan"
    )]
    NoDevice,
    /// The machine has no such device.
    #[error("no {runtime} device {index} on this machine ({found} found); {remedy}")]
    DeviceMissing {
        /// Runtime in words.
        runtime: &'static str,
        /// Index asked for.
        index: usize,
        /// Devices found.
        found: usize,
        /// What to do.
        remedy: &'static str,
    },
    /// A percentage of a memory whose free size is not known.
    #[error(
        "{flag} {percent}%: the free memory of {of} cannot be told, so a percentage means nothing here; give \
         bytes, such as 6GiB"
    )]
    FreeMemoryUnknown {
        /// The flag.
        flag: &'static str,
        /// The percentage.
        percent: f64,
        /// Which memory.
        of: &'static str,
    },
    /// The thread pool was already there, or could not be made.
    #[error("the thread pool could not be set to {threads} threads")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// Cause.
        source: rayon::ThreadPoolBuildError,
    },
    /// Ctrl-C could not be caught.
    #[error("the handler for Ctrl-C could not be installed")]
    Signal {
        /// Cause.
        source: ctrlc::Error,
    },
    /// Nothing lies at a path.
    #[error("`{}` does not exist{hint}; check the path", path.display())]
    MissingPath {
        /// The path.
        path: PathBuf,
        /// Nearest name, as a clause.
        hint: String,
    },
    /// A link whose end is not there.
    #[error("`{}` is a link to `{}`, which {why}; check the link", path.display(), target.display())]
    BrokenLink {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
        /// What is wrong with that.
        why: &'static str,
    },
    /// Something that is no regular file.
    #[error("`{}` is not a regular file; name a file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A document that is too large to be one.
    #[error("`{}` is larger than {limit} bytes, the most such a file may have; check the path", path.display())]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes at most.
        limit: u64,
    },
    /// An output that would replace an input or the other output.
    #[error(
        "the output `{}` is the same file as `{}`, which would be overwritten; choose another name",
        output.display(), other.display()
    )]
    SameFile {
        /// The output.
        output: PathBuf,
        /// The input, or the other output.
        other: PathBuf,
    },
    /// A size that the schedule cannot serve.
    #[error(
        "--size {width}x{height} is too large for the model's schedule, whose shift grows with the size; the \
         largest square is {largest}x{largest}, or give --shift none or a number"
    )]
    SizeTooLarge {
        /// Width asked for.
        width: usize,
        /// Height asked for.
        height: usize,
        /// Side of the largest square.
        largest: usize,
    },
    /// A file that is no adapter this program reads.
    #[error("`{}` is {why}", path.display())]
    NotAnAdapter {
        /// The file.
        path: PathBuf,
        /// What it is instead, and what to do.
        why: &'static str,
    },
    /// A folder of adapters where one adapter is expected.
    #[error("`{}` is a folder of LoRAs ({count}); use `overglaze sweep --loras`, or name one", path.display())]
    FolderOfLoras {
        /// The folder.
        path: PathBuf,
        /// How many it holds.
        count: usize,
    },
    /// Results that are no numbers.
    #[error(
        "the results of {names} hold NaN or infinite values, which no picture shows; lower the strength, or check \
         the model and the LoRA"
    )]
    NotFinite {
        /// Columns in words.
        names: String,
    },
    /// A file or folder could not be read.
    #[error("`{}` cannot be read", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A folder holds no adapter.
    #[error(
        "the folder `{}` holds no adapters: expected .safetensors files or PEFT folders directly \
         inside it{skipped}",
        path.display()
    )]
    NoAdapters {
        /// The folder.
        path: PathBuf,
        /// What was skipped, as a clause.
        skipped: String,
    },
    /// An output could not be written.
    #[error("`{}` cannot be written", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// An output path that cannot be one.
    #[error("`{}` cannot be written: {why}", path.display())]
    OutputPath {
        /// The path.
        path: PathBuf,
        /// What is wrong and what to do.
        why: &'static str,
    },
    /// A picture could not be encoded.
    #[error("the picture for `{}` could not be encoded as PNG", path.display())]
    Encode {
        /// The path.
        path: PathBuf,
        /// Cause.
        source: image::ImageError,
    },
    /// A picture would be too large.
    #[error(
        "the picture would have {width} x {height} pixels, more than the {limit} this command draws; \
         use fewer prompts, fewer LoRAs or a smaller --size"
    )]
    PictureTooLarge {
        /// Width.
        width: u64,
        /// Height.
        height: u64,
        /// Pixels at most.
        limit: u64,
    },
    /// Latents could not be written.
    #[error("the latents for `{}` could not be encoded", path.display())]
    EncodeLatents {
        /// The path.
        path: PathBuf,
        /// Cause.
        source: safetensors::SafeTensorError,
    },
    /// A text prompt for a model without text encoders.
    #[error(
        "text prompts need text encoders, which are not part of this version; for `{model}` give \
         --conditioning FILE.safetensors with encoder_hidden_states and pooled_projections"
    )]
    NoTextEncoder {
        /// The model.
        model: String,
    },
    /// A model other than the demo without conditioning.
    #[error(
        "`{model}` needs --conditioning FILE.safetensors with encoder_hidden_states [prompts, tokens, \
         width] and pooled_projections [prompts, width]"
    )]
    NoConditioning {
        /// The model.
        model: String,
    },
    /// No adapters are named where some are needed; the sentence says which.
    #[error("{0}")]
    NoLoras(&'static str),
    /// A file with prompts holds none.
    #[error("`{}` holds no prompts; expected one a line", path.display())]
    NoPrompts {
        /// The file.
        path: PathBuf,
    },
    /// A line of a file with prompts is none.
    #[error("`{}`, line {line}", path.display())]
    PromptLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: Box<ModelError>,
    },
    /// A line of a file with prompts is no text.
    #[error("`{}`, line {line}: not UTF-8 text; save the file as UTF-8", path.display())]
    PromptEncoding {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// Names and shapes where tensors are expected.
    #[error(
        "`{}` is a list of keys and shapes, which holds no tensors; use `overglaze check`, as an adapter or with \
         --model-keys",
        path.display()
    )]
    KeyList {
        /// The file.
        path: PathBuf,
    },
    /// A merged copy of a layer that is streamed.
    #[error(
        "--placement direct needs the weights in place, and layer `{layer}` is streamed under --device-budget or \
         --host-budget; leave the budget out, or use --placement sidecar or auto"
    )]
    DirectStreamed {
        /// The layer.
        layer: String,
    },
    /// A setting that this model or device does not take.
    #[error("{flag} does not apply to {to}: {why}")]
    SettingUnused {
        /// The flag.
        flag: &'static str,
        /// The model or the device.
        to: String,
        /// Why, and what to do.
        why: &'static str,
    },
    /// A tensor that a file must hold is not there.
    #[error("`{file}` has no tensor `{tensor}`{hint}; expected {expected}")]
    TensorMissing {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Nearest name, as a clause.
        hint: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A tensor of a file has another shape.
    #[error("`{file}`: tensor `{tensor}` has shape {found:?}, expected {expected}")]
    TensorShape {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Shape found.
        found: Vec<usize>,
        /// Shape expected.
        expected: String,
    },
    /// A JSON file is not what it must be.
    #[error("`{}` is not {expected}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What it must be.
        expected: &'static str,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A key of a list of keys has a shape that its tensor cannot have.
    #[error("`{}`: key `{key}` has shape {found:?}, expected {expected}", path.display())]
    KeyShape {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Shape found.
        found: Vec<usize>,
        /// What it may be.
        expected: &'static str,
    },
    /// Not one adapter fits.
    #[error("none of the {count} LoRAs fits the model; the first, {first}")]
    NothingFits {
        /// How many were tried.
        count: usize,
        /// The first and why.
        first: String,
    },
    /// Not one adapter could be read.
    #[error("none of the {count} LoRAs can be read; the first, {first}")]
    NothingRead {
        /// How many were tried.
        count: usize,
        /// The first and why.
        first: String,
    },
    /// Some adapters that were to be checked could not be.
    #[error("{count} of {total} adapters cannot be checked; the first, {first}")]
    NotChecked {
        /// How many could not.
        count: usize,
        /// How many were named.
        total: usize,
        /// The first and why.
        first: String,
    },
    /// Some files that were to be inspected could not be.
    #[error("{count} of {total} files cannot be inspected; the first, {first}")]
    NotInspected {
        /// How many could not.
        count: usize,
        /// How many were named.
        total: usize,
        /// The first and why.
        first: String,
    },
    /// The base is not what it was.
    #[error(
        "the base is not restored: {what} differs from before the first mount; this is a bug, please \
         report it with the table above"
    )]
    BaseChanged {
        /// What differs.
        what: &'static str,
    },
}
