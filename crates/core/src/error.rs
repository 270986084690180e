//! Why a layer could not be loaded, run or patched.

use std::error::Error as _;

use overglaze_patches::PatchError;
use overglaze_quant::QuantError;
use overglaze_stream::StreamError;

/// Errors of this crate. Each message names the layer, tensor or key, what was found and what was
/// expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A weight could not be read or streamed.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A patch could not be read or built.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// A packed weight is not what its format says.
    #[error("tensor `{tensor}` cannot be read")]
    Quant {
        /// Tensor in the file.
        tensor: String,
        /// What is wrong with it.
        source: Box<QuantError>,
    },
    /// A weight cannot stand in a safetensors file.
    #[error(
        "the weight `{tensor}` would be stored as {found}, for which safetensors has no type; write a .gguf file, or \
         choose a format of another library"
    )]
    NoSafetensorsType {
        /// Name.
        tensor: String,
        /// What it would be stored as.
        found: String,
    },
    /// A weight has values beyond what a format's scales can hold.
    #[error(
        "the weight `{tensor}` has values too large for {format}, whose scales have 16 bits; leave it as it is with \
         --keep, or choose another format"
    )]
    PackOverflow {
        /// Name.
        tensor: String,
        /// What it would be packed as.
        format: &'static str,
    },
    /// A weight cannot stand in a GGUF file.
    #[error(
        "the weight `{tensor}` would be stored as {found}, for which GGUF has no type; write a .safetensors file, or \
         choose a GGML format"
    )]
    NoGgufType {
        /// Name.
        tensor: String,
        /// What it would be stored as.
        found: String,
    },
    /// A weight to be packed has values that are no numbers.
    #[error(
        "the weight `{tensor}` has NaN or infinite values, which cannot be packed as {format}; keep it as it is"
    )]
    PackNotFinite {
        /// Name.
        tensor: String,
        /// What it would be packed as.
        format: &'static str,
    },
    /// A decoded value does not fit the type asked for.
    #[error("the weight `{tensor}` has values that do not fit {dtype}; ask for bf16 or f32")]
    DecodeOverflow {
        /// Name.
        tensor: String,
        /// The type asked for.
        dtype: &'static str,
    },
    /// A tensor the model needs is not in the file.
    #[error("{file}: tensor `{tensor}` is missing{hint}")]
    MissingTensor {
        /// File or source.
        file: String,
        /// Tensor name.
        tensor: String,
        /// Nearest names, as a clause; empty when there are none.
        hint: String,
    },
    /// A tensor has another shape than the model needs.
    #[error("{file}: tensor `{tensor}` has shape {found:?}, expected {expected}")]
    WrongShape {
        /// File or source.
        file: String,
        /// Tensor name.
        tensor: String,
        /// Shape found.
        found: Vec<usize>,
        /// Shape expected, in words.
        expected: String,
    },
    /// A tensor holds another type of values than the model takes.
    #[error("{file}: tensor `{tensor}` has dtype {found}, expected {expected}; convert the tensor")]
    WrongDtype {
        /// File or source.
        file: String,
        /// Tensor name.
        tensor: String,
        /// The container's type tag.
        found: String,
        /// Types expected, in words.
        expected: &'static str,
    },
    /// A streamed layer was used before its streamer was started.
    #[error(
        "the weights are not being streamed yet; call `LayerLoader::finish` before a forward pass"
    )]
    NotStarted,
    /// Somebody took the weight out of a layer.
    #[error(
        "the layer has no weight: its field `weight` was set to `None`; put the parameter back"
    )]
    NoWeight,
    /// The input's last axis is not the layer's input width.
    #[error("the input has {found} features, the layer takes {expected}")]
    InputWidth {
        /// Last axis of the input.
        found: usize,
        /// `d_input` of the layer.
        expected: usize,
    },
    /// The input's second axis is not the layer's number of channels.
    #[error("the input has {found} channels, the layer takes {expected}")]
    InputChannels {
        /// Channels of the input.
        found: usize,
        /// Channels of the layer.
        expected: usize,
    },
    /// A convolution's input, with its padding, is smaller than the kernel.
    #[error(
        "the input's axes are {found:?} with padding, the kernel reaches over {kernel:?}; give a larger input"
    )]
    InputTooSmall {
        /// Sizes of the input's axes with padding.
        found: Vec<usize>,
        /// Sizes of the kernel with dilation.
        kernel: Vec<usize>,
    },
    /// A convolution that cannot be computed.
    #[error(
        "a convolution with a weight {weight:?}, stride {stride:?}, dilation {dilation:?} and {groups} \
         groups cannot run; expected {expected}"
    )]
    Convolution {
        /// Shape of the weight.
        weight: Vec<usize>,
        /// Steps.
        stride: Vec<usize>,
        /// Distances of kernel elements.
        dilation: Vec<usize>,
        /// Groups of channels.
        groups: usize,
        /// What is needed instead.
        expected: &'static str,
    },
    /// Channels that cannot be split into the groups of a norm.
    #[error(
        "{num_channels} channels cannot be normalized in {num_groups} groups; expected a number of \
         groups that divides the channels"
    )]
    NormGroups {
        /// Channels.
        num_channels: usize,
        /// Groups.
        num_groups: usize,
    },
    /// Weights of another shape than the layer they are for.
    #[error("the weight has shape {found:?}, the layer needs {expected:?}")]
    WeightShape {
        /// Shape found.
        found: Vec<usize>,
        /// Shape expected.
        expected: Vec<usize>,
    },
    /// An index that an embedding has no row for.
    #[error("the index {id} is outside the embedding, which has the rows 0..{num_embeddings}")]
    IdOutside {
        /// The index.
        id: i64,
        /// Rows of the embedding.
        num_embeddings: usize,
    },
    /// The weight is on another device and the layer was told not to follow the input.
    #[error(
        "the weight is on {weight} and the input on {input}, and autocast is off for this layer; \
         turn it on with `set_autocast(true)` or move one of them"
    )]
    AutocastOff {
        /// Where or what the weight is.
        weight: String,
        /// Where or what the input is.
        input: String,
    },
    /// The patches of one layer do not go together.
    #[error("the patches for layer `{layer}` cannot be laid side by side")]
    Layer {
        /// Layer path.
        layer: String,
        /// What is wrong.
        source: Box<PatchError>,
    },
    /// An adapter of this name is mounted already.
    #[error(
        "an adapter called `{name}` is mounted already; unmount it first or choose another name"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
    /// No adapter of this name is mounted.
    #[error("no adapter called `{name}` is mounted; mounted: {mounted:?}")]
    NotMounted {
        /// The name.
        name: String,
        /// What is mounted.
        mounted: Vec<String>,
    },
    /// Not one key of the adapter fits the model.
    #[error("adapter `{name}` does not fit this model: {why}")]
    NothingApplied {
        /// The adapter.
        name: String,
        /// Counts and the first reason.
        why: String,
    },
    /// A strength that is not a finite number.
    #[error("the strength of adapter `{name}` is {strength}, expected a finite number")]
    BadStrength {
        /// The adapter.
        name: String,
        /// The strength found.
        strength: f32,
    },
    /// A pattern of strengths matches no layer of the model.
    #[error("the strength pattern `{pattern}` matches no layer of the model; nearest: `{nearest}`")]
    PatternUnmatched {
        /// The pattern.
        pattern: String,
        /// The name it comes closest to.
        nearest: String,
    },
    /// A text that strengths cannot be read from.
    #[error(
        "`{part}` is no strength: {why}; write a number for all layers and `pattern=number` for some, with \
         commas between, e.g. `1.0,double_blocks.0.*=0.5`"
    )]
    StrengthSyntax {
        /// The part that is wrong.
        part: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Two adapters would replace one parameter.
    #[error(
        "the adapters `{first}` and `{second}` both replace the {parameter} of layer `{layer}`, and only one \
         can; unmount one of them"
    )]
    TwoReplacements {
        /// Layer path.
        layer: String,
        /// The parameter.
        parameter: &'static str,
        /// The adapter that is mounted, or comes first.
        first: String,
        /// The other.
        second: String,
    },
    /// `into_inner` of a layer with patches on it.
    #[error("patches are mounted on this layer; unmount them before `into_inner`")]
    StillMounted,
    /// `into_inner` of a layer with something merged into it.
    #[error("an adapter is merged into this layer; restore the base before `into_inner`")]
    StillMerged,
    /// A streamed weight cannot be merged into.
    #[error(
        "layer `{layer}` is streamed under a budget, so an adapter cannot be merged into it; load \
         the model without a budget, or mount the adapter instead"
    )]
    MergeStreamed {
        /// Layer path.
        layer: String,
    },
    /// A weight that cannot be decoded cannot be merged into.
    #[error(
        "the weight of layer `{layer}` cannot be decoded, only multiplied with, so an adapter cannot be merged into it; \
         mount the adapter by sidecar instead"
    )]
    MergeHidden {
        /// Layer path.
        layer: String,
    },
    /// A weight that cannot be decoded stands where its values are needed.
    #[error(
        "the tensor `{tensor}` is packed as {format}, which cannot be decoded, only multiplied with; it can be the weight \
         of a linear layer in host memory, and nothing else"
    )]
    NoValues {
        /// Tensor in the file.
        tensor: String,
        /// How it is packed.
        format: &'static str,
    },
    /// A merged value is too large for the type it is stored in.
    #[error(
        "tensor `{tensor}`: a merged value does not fit {dtype}; lower the strengths, or merge into a \
         checkpoint of a wider type"
    )]
    MergeOverflow {
        /// Tensor name.
        tensor: String,
        /// The container's type tag.
        dtype: String,
    },
    /// A parameter of a Burn module has a reparameterization already.
    #[error(
        "the parameter `{parameter}` has a reparameterization already, and Burn cannot nest them; fold it in with \
         `materialize` first"
    )]
    Reparameterized {
        /// Path of the parameter.
        parameter: String,
    },
    /// The layer is no Burn layer underneath.
    #[error("the layer's weight is packed or streamed, so there is no Burn layer to hand back")]
    NotABurnLayer,
    /// Two aliases of a model cannot be told apart when written with underscores.
    #[error("the layer names `{first}` and `{second}` both become `{flattened}` with underscores")]
    AmbiguousName {
        /// One name.
        first: String,
        /// The other.
        second: String,
        /// What both become.
        flattened: String,
    },
    /// One name was given to different rows of a model.
    #[error("the layer name `{name}` stands for {first} and cannot stand for {second} as well")]
    ConflictingName {
        /// The name.
        name: String,
        /// What it stands for.
        first: String,
        /// What it was to stand for.
        second: String,
    },
}

/// The value, or a panic with the error and its causes; for calls that have no result.
#[track_caller]
pub(crate) fn value_or_panic<T>(result: Result<T, Error>) -> T {
    let error = match result {
        Ok(value) => return value,
        Err(error) => error,
    };
    let (mut message, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    panic!("{message}")
}
