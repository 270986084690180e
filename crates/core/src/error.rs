//! Why a layer could not be loaded, run or patched.

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
    #[error("tensor `{tensor}`: {source}")]
    Quant {
        /// Tensor in the file.
        tensor: String,
        /// What is wrong with it.
        source: QuantError,
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
    /// The input's last axis is not the layer's input width.
    #[error("the input has {found} features, the layer takes {expected}")]
    InputWidth {
        /// Last axis of the input.
        found: usize,
        /// `d_input` of the layer.
        expected: usize,
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
    /// A patch does not fit the layer.
    #[error("layer `{layer}`: {source}")]
    Layer {
        /// Layer path.
        layer: String,
        /// What is wrong.
        source: PatchError,
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
    /// Patches are mounted and the operation needs a bare base.
    #[error(
        "{operation} is refused while patches are mounted on layer `{layer}`; unmount them first"
    )]
    Mounted {
        /// What was asked for.
        operation: &'static str,
        /// Layer path.
        layer: String,
    },
    /// Something is baked into the base already.
    #[error("layer `{layer}` has a merged adapter already; restore the base first")]
    AlreadyMerged {
        /// Layer path.
        layer: String,
    },
    /// A streamed weight cannot be merged into.
    #[error(
        "layer `{layer}` is streamed under a budget, so an adapter cannot be merged into it; load \
         the model without a budget, or mount the adapter instead"
    )]
    MergeStreamed {
        /// Layer path.
        layer: String,
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
    /// An adapter file or folder could not be read.
    #[error("{path}: {why}")]
    AdapterFile {
        /// The path.
        path: String,
        /// What is wrong and what to do.
        why: String,
    },
}
