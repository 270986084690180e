//! Why a model could not be rewritten.

/// Errors of `quantize`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// No format has the name.
    #[error("no weight format is called `{name}`{hint}; formats that can be written: {known}")]
    UnknownFormat {
        /// What was asked for.
        name: String,
        /// The nearest name, as a clause.
        hint: String,
        /// Formats that can be written.
        known: String,
    },
    /// A format can only be read.
    #[error(
        "weights of the format {format} are read, but not written; those that can be written: {known}"
    )]
    NotWritten {
        /// The format.
        format: &'static str,
        /// Formats that can be written.
        known: String,
    },
    /// A format is written in several ways, or one with another name.
    #[error("weights of the format {format} are written as {written_as}; choose by --format")]
    WrittenAs {
        /// The format.
        format: &'static str,
        /// The ways.
        written_as: String,
    },
    /// A pattern names no weight.
    #[error("`{pattern}` matches no weight of the model{hint}; `overglaze inspect` lists them")]
    PatternUnmatched {
        /// The pattern.
        pattern: String,
        /// The nearest name, as a clause.
        hint: String,
    },
    /// The rules leave nothing to pack.
    #[error(
        "`{file}` has no weight to pack as {format}: all are vectors, norms, embeddings, first or last layers, of a \
         shape it does not take, or packed so already; name some with --pack, or choose another format"
    )]
    NothingToPack {
        /// The model.
        file: String,
        /// The format.
        format: &'static str,
    },
}
