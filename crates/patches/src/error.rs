//! Why a patch could not be read, built or laid over a layer.

use std::{io, ops::Range, path::PathBuf};

use crate::{Operator, dialects::Family};

/// Errors of this crate. Each message names the layer or key, what was found and what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// No registered kind accepts exactly these keys.
    #[error(
        "layer `{target}`: no patch kind accepts the keys {keys:?}{}; known kinds: {known:?}",
        family_note(.families)
    )]
    Unrecognized {
        /// Layer in the file.
        target: String,
        /// Its canonical suffixes.
        keys: Vec<String>,
        /// Families that have those of the keys that no registered kind knows.
        families: Vec<&'static Family>,
        /// Registered kinds.
        known: Vec<&'static str>,
    },
    /// The keys belong to one kind, but not all that it needs are there.
    #[error(
        "layer `{target}`: {missing:?} missing beside {keys:?}, which a {kind} patch needs; \
         is the file complete?"
    )]
    Incomplete {
        /// Layer in the file.
        target: String,
        /// Canonical suffixes that are there.
        keys: Vec<String>,
        /// Canonical suffixes that are not.
        missing: Vec<String>,
        /// The kind they belong to.
        kind: &'static str,
    },
    /// More than one registered kind accepts the keys.
    #[error("layer `{target}`: the patch kinds {kinds:?} all accept the keys {keys:?}")]
    Ambiguous {
        /// Layer in the file.
        target: String,
        /// Its canonical suffixes.
        keys: Vec<String>,
        /// The kinds that accept them.
        kinds: Vec<&'static str>,
    },
    /// A tensor the kind needs is not in the file.
    #[error("layer `{target}`: tensor `{key}` is missing; is the file complete?")]
    MissingTensor {
        /// Layer in the file.
        target: String,
        /// Canonical suffix.
        key: String,
    },
    /// A tensor has the wrong number of dimensions.
    #[error("layer `{target}`: tensor `{key}` has shape {found:?}, expected {expected}")]
    WrongRank {
        /// Layer in the file.
        target: String,
        /// Canonical suffix.
        key: String,
        /// Shape found.
        found: Vec<usize>,
        /// Dimensions expected, in words.
        expected: String,
    },
    /// A tensor that must hold one number holds several or none.
    #[error("layer `{target}`: tensor `{key}` has shape {found:?}, expected one number")]
    NotAScalar {
        /// Layer in the file.
        target: String,
        /// Canonical suffix.
        key: String,
        /// Shape found.
        found: Vec<usize>,
    },
    /// A tensor that must be floating point is not.
    #[error(
        "layer `{target}`: tensor `{key}` has dtype {found}, expected f16, bf16, f32 or f64; save the \
         adapter with floating-point values"
    )]
    NotFloat {
        /// Layer in the file.
        target: String,
        /// Canonical suffix.
        key: String,
        /// Dtype found.
        found: String,
    },
    /// A tensor holds a number that no arithmetic in f32 survives.
    #[error(
        "layer `{target}`: tensor `{key}` has {value} at element {index}, expected finite numbers; the file \
         is damaged or its training diverged, use another copy or an earlier one"
    )]
    NotFinite {
        /// Layer in the file.
        target: String,
        /// Canonical suffix.
        key: String,
        /// Row-major position of the first such number.
        index: usize,
        /// The number.
        value: f64,
    },
    /// Tensors of one patch contradict each other.
    #[error("layer `{target}`: {why}")]
    Inconsistent {
        /// Layer in the file.
        target: String,
        /// What contradicts what.
        why: String,
    },
    /// The patch is for a weight of another shape. A patch does not know its layer: who lays it over one
    /// adds the name.
    #[error("the {kind} patch is for a weight of shape {patch:?}, the layer has {base:?}")]
    DoesNotFit {
        /// Kind of the patch.
        kind: String,
        /// Shape `[d_output, fan_in]` the patch is for.
        patch: [usize; 2],
        /// Shape of the base weight; a convolution's with its kernel.
        base: Vec<usize>,
    },
    /// The patch is for a weight of as many rows and columns whose columns are other axes.
    #[error("the {kind} patch is for a weight of the axes {patch:?}, the layer has {base:?}")]
    OtherAxes {
        /// Kind of the patch.
        kind: String,
        /// Axes the patch is for.
        patch: Vec<usize>,
        /// Shape of the base weight.
        base: Vec<usize>,
    },
    /// The kind has no meaning on such a layer.
    #[error("a {kind} patch has no meaning on {article} {operator}: {why}", article = article(.operator))]
    NoMeaning {
        /// Kind of the patch.
        kind: String,
        /// What the layer is.
        operator: Operator,
        /// Why not, and where it would have one.
        why: String,
    },
    /// The patch needs the base's values and only its shape is there.
    #[error(
        "a {kind} patch needs the values of the base weight, but only its shape can be read; mount it \
         on a checkpoint whose weight can be decoded"
    )]
    BaseUnavailable {
        /// Kind of the patch.
        kind: String,
    },
    /// A row range does not lie inside the weight.
    #[error("rows {rows:?} are not a range inside a weight of {d_output} rows")]
    RowsOutside {
        /// The range.
        rows: Range<usize>,
        /// Rows of the weight.
        d_output: usize,
    },
    /// Two patches are laid over the same rows.
    #[error(
        "rows {first:?} and {second:?} of one weight overlap, expected disjoint ranges; leave one of the \
         two patches out of the adapter"
    )]
    RowsOverlap {
        /// The range that starts first.
        first: Range<usize>,
        /// The range that starts inside it.
        second: Range<usize>,
    },
    /// A patch that reads the base cannot be reduced to some of its rows.
    #[error(
        "a {kind} patch reads the whole fused weight and cannot be cut to its rows {rows:?}; \
         mount it on a checkpoint that keeps the weight fused"
    )]
    NeedsWholeBase {
        /// Kind of the patch.
        kind: String,
        /// Rows asked for.
        rows: Range<usize>,
    },
    /// No key of a file is an adapter's.
    #[error(
        "`{name}` holds no adapter tensors: none of its {num_keys} keys is in a spelling this \
         build reads ({dialects:?})"
    )]
    NoAdapterTensors {
        /// Name of the file.
        name: String,
        /// Tensors it holds.
        num_keys: usize,
        /// Registered dialects.
        dialects: Vec<&'static str>,
    },
    /// Two keys of a file are two spellings of one tensor, with different values.
    #[error(
        "layer `{target}`: the keys `{first}` and `{second}` both give `{suffix}` and differ; \
         remove one of them from the file"
    )]
    Conflict {
        /// Layer in the file.
        target: String,
        /// Canonical suffix.
        suffix: String,
        /// The key met first.
        first: String,
        /// The key met second.
        second: String,
    },
    /// The keys of a file name two adapters, as PEFT does for each adapter of a model.
    #[error(
        "`{name}` holds the keys of two adapters, `{first}` and `{second}` (in `{key}`), expected those of \
         one; export one adapter to a file of its own"
    )]
    TwoAdapters {
        /// Name of the file.
        name: String,
        /// Name of the adapter met first.
        first: String,
        /// Name of the adapter met second.
        second: String,
        /// The first key of the second adapter.
        key: String,
    },
    /// Two dialects both understand a key.
    #[error("key `{key}`: the dialects {dialects:?} all claim it")]
    AmbiguousKey {
        /// Key in the file.
        key: String,
        /// Dialects that claim it.
        dialects: Vec<&'static str>,
    },
    /// An adapter configuration is not the JSON it should be.
    #[error(
        "the adapter configuration in `{path}` is not the JSON object that PEFT writes; save or download \
         it again"
    )]
    ConfigJson {
        /// The file that holds the configuration.
        path: PathBuf,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// An adapter configuration is longer than any real one.
    #[error(
        "the adapter configuration in `{path}` has more than {max_bytes} bytes; is it another file under \
         this name?"
    )]
    ConfigTooLong {
        /// The file that holds the configuration.
        path: PathBuf,
        /// Most bytes that are read.
        max_bytes: usize,
    },
    /// A pattern of an adapter configuration is not a regular expression.
    #[error(
        "the adapter configuration in `{path}`: `{pattern}` in `{field}` is not a regular expression \
         that can be used; correct the pattern"
    )]
    ConfigPattern {
        /// The file that holds the configuration.
        path: PathBuf,
        /// Field of the configuration.
        field: &'static str,
        /// The pattern.
        pattern: String,
        /// What the parser says.
        #[source]
        source: regex_lite::Error,
    },
    /// An adapter configuration asks for something a weight patch cannot do.
    #[error("the adapter configuration in `{path}` has {field} = {found}: {why}")]
    UnsupportedConfig {
        /// The file that holds the configuration.
        path: PathBuf,
        /// Field of the configuration.
        field: &'static str,
        /// Its value.
        found: String,
        /// Why it is refused, and what to do.
        why: &'static str,
    },
    /// A module was saved whole beside the adapter.
    #[error(
        "layer `{target}`: the adapter's `modules_to_save` replaces the whole module, which no patch can; merge \
         the adapter into its model with PEFT where the module matters"
    )]
    SavedModule {
        /// Path of the module in the file.
        target: String,
    },
    /// A folder is not an adapter's.
    #[error(
        "the folder `{path}` holds no `{missing}`; an adapter folder holds adapter_config.json and \
         adapter_model.safetensors"
    )]
    NotAnAdapterFolder {
        /// The folder.
        path: PathBuf,
        /// The first part that is not there.
        missing: &'static str,
    },
    /// A file cannot be opened or mapped.
    #[error("`{path}` cannot be read; check that it is there and a readable file")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file is something else than its name says.
    #[error("`{path}` is {found}, expected a safetensors file; {remedy}")]
    NotSafetensors {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        found: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A safetensors file is damaged.
    #[error("`{path}` is not a complete safetensors file; download it again")]
    Container {
        /// The file.
        path: PathBuf,
        /// What the reader says.
        #[source]
        source: safetensors::SafeTensorError,
    },
    /// A safetensors header names a tensor twice.
    #[error(
        "`{path}` names the tensor `{key}` twice in its header, expected once; save the file again"
    )]
    DuplicateKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A tensor has an element type that adapters are not read in.
    #[error(
        "`{path}`: tensor `{key}` has dtype {found}, expected a float dtype of 16 to 64 bits or an integer \
         dtype; save the adapter in one of them"
    )]
    UnsupportedDtype {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Dtype found.
        found: String,
    },
    /// A tensor's bytes do not fill its shape.
    #[error(
        "`{path}`: tensor `{key}` of dtype {dtype} and shape {shape:?} has {found_bytes} bytes, which is \
         not what the shape needs; download the file again"
    )]
    WrongSize {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Type tag in the file.
        dtype: String,
        /// Shape in the file.
        shape: Vec<usize>,
        /// Bytes found.
        found_bytes: usize,
    },
}

/// What is added to a message about keys of known `families`; nothing when there are none.
fn family_note(families: &[&Family]) -> String {
    families
        .iter()
        .map(|family| format!("; these are the keys of {family}"))
        .collect()
}

fn article(operator: &Operator) -> &'static str {
    match operator {
        Operator::Embedding => "an",
        _ => "a",
    }
}
