//! Why a model could not be loaded, conditioned or run.

use std::path::PathBuf;

use overglaze_stream::StreamError;

/// Errors of this crate. Each message names the tensor, input or setting, what was found and what
/// was expected, and what to do where that is not plain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A layer could not be read or run.
    #[error(transparent)]
    Layer(#[from] overglaze_core::Error),
    /// A weight source could not be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The tensors are not those of a FLUX.1 transformer.
    #[error(
        "{file} is not a FLUX.1 transformer: among its {num_tensors} tensors (first: {first:?}) are \
         neither `{}` (diffusers naming) nor `{}` (BFL naming); give a FLUX.1 checkpoint",
        expected[0], expected[1]
    )]
    NotFlux {
        /// The checkpoint.
        file: String,
        /// A tensor of each naming that every FLUX.1 transformer has.
        expected: [&'static str; 2],
        /// How many tensors the source has.
        num_tensors: usize,
        /// The first few names.
        first: Vec<String>,
    },
    /// Tensors of both namings are there.
    #[error(
        "{file} mixes two namings: `{diffusers}` is diffusers', `{bfl}` is BFL's; \
         give a file that holds one model in one naming"
    )]
    MixedNaming {
        /// The checkpoint.
        file: String,
        /// A tensor in diffusers naming.
        diffusers: String,
        /// A tensor in BFL naming.
        bfl: String,
    },
    /// A tensor the model needs is not there.
    #[error("{file} has no tensor `{tensor}`; the checkpoint is incomplete, so fetch it again")]
    MissingTensor {
        /// The checkpoint.
        file: String,
        /// Its name.
        tensor: String,
    },
    /// A tensor has another shape than the configuration asks for.
    #[error("{file}: tensor `{tensor}` has shape {found:?}, expected {expected}")]
    TensorShape {
        /// The file.
        file: String,
        /// Its name.
        tensor: String,
        /// Shape found.
        found: Vec<usize>,
        /// What was expected, in words or as a shape.
        expected: String,
    },
    /// A configuration and the tensors contradict each other.
    #[error(
        "the configuration says {field} = {config}, but the tensors say {tensors} \
         (`{tensor}`); give the configuration that belongs to this checkpoint"
    )]
    ConfigMismatch {
        /// Field of the configuration.
        field: &'static str,
        /// Its value there.
        config: String,
        /// What the tensors say.
        tensors: String,
        /// The tensor that says it.
        tensor: String,
    },
    /// A configuration that no model can have.
    #[error("the configuration is impossible: {field} = {found}, expected {expected}")]
    InvalidConfig {
        /// Field of the configuration.
        field: &'static str,
        /// Its value.
        found: String,
        /// What it must be.
        expected: String,
    },
    /// A configuration of another network.
    #[error(
        "the configuration is of the network `{found}`, expected {expected}; give the config.json of a \
         FLUX.1 transformer"
    )]
    NotThisNetwork {
        /// Network it is of.
        found: String,
        /// The one that is built here.
        expected: &'static str,
    },
    /// The tensors do not tell the rotary axes and no configuration was given.
    #[error(
        "the tensors of {file} do not say how the head width {head_dim} is divided among the rotary axes; \
         give the model's config.json with --config"
    )]
    NeedsConfig {
        /// File with the tensors.
        file: String,
        /// Width of one attention head.
        head_dim: usize,
    },
    /// A JSON document could not be parsed.
    #[error("{document} is not JSON of the expected form")]
    Json {
        /// What the document is.
        document: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A document beside the model could not be read.
    #[error("`{}` cannot be read", path.display())]
    Io {
        /// The document.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A setting of a scheduler document that changes the schedule and is not supported.
    #[error(
        "the scheduler configuration sets {field} = {found}, expected {expected}; give --shift"
    )]
    Scheduler {
        /// Field.
        field: &'static str,
        /// Its value.
        found: String,
        /// What is supported.
        expected: &'static str,
    },
    /// A network whose output cannot be fed back as its input.
    #[error(
        "the model takes {in_channels} channels and returns {out_channels}: it needs a control or \
         fill image, which the sampler does not offer"
    )]
    NotASampler {
        /// Channels of an input token.
        in_channels: usize,
        /// Channels of an output token.
        out_channels: usize,
    },
    /// An input of the model has the wrong shape.
    #[error("input `{input}` has shape {found:?}, expected {expected}")]
    InputShape {
        /// Name of the input.
        input: &'static str,
        /// Shape found.
        found: Vec<usize>,
        /// What was expected.
        expected: String,
    },
    /// An input holds a value that cannot be computed with.
    #[error("input `{input}` holds {found}, expected {expected}")]
    InputValue {
        /// Name of the input.
        input: &'static str,
        /// Value found.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A tensor that must hold floating-point numbers holds something else.
    #[error("{file}: tensor `{tensor}` has type {found}, expected F32, F16 or BF16")]
    NotFloat {
        /// The file.
        file: String,
        /// Its name.
        tensor: String,
        /// Type found.
        found: String,
    },
    /// A tensor of a file holds values nothing can be computed with.
    #[error("{file}: tensor `{tensor}` holds {found}, expected finite numbers")]
    NotFinite {
        /// The file.
        file: String,
        /// Its name.
        tensor: String,
        /// Value found.
        found: f32,
    },
    /// A guidance-distilled model was run without guidance.
    #[error("the model embeds guidance, but none was given; set a guidance such as 3.5")]
    GuidanceMissing,
    /// Guidance was given to a model without a guidance embedding.
    #[error("guidance was given, but the model has no guidance embedding; leave it out")]
    GuidanceUnused,
    /// A prompt word that the embedding does not know.
    #[error("the demo does not know the prompt word `{word}`{hint}; it knows: {known}")]
    UnknownWord {
        /// The word.
        word: String,
        /// The nearest word, as a clause; empty where none is near.
        hint: String,
        /// All words it knows.
        known: String,
    },
    /// No prompt was given.
    #[error("no prompt was given, expected at least one")]
    NoPrompts,
    /// A source has no metadata entry that is needed.
    #[error("{file} has no metadata entry `{key}`, expected {expected}")]
    MissingMetadata {
        /// The file.
        file: String,
        /// The entry.
        key: &'static str,
        /// What it must hold.
        expected: &'static str,
    },
    /// A schedule that cannot be walked.
    #[error("the schedule is impossible: {what} is {found}, expected {expected}")]
    Schedule {
        /// Part of the schedule.
        what: &'static str,
        /// Its value.
        found: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A result could not be read back from the device.
    #[error("reading `{what}` back from the device failed")]
    Readback {
        /// What was read.
        what: &'static str,
        /// The cause.
        #[source]
        source: burn::tensor::TensorReadError,
    },
}
