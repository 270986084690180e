//! A tensor of a source by its name, and what is said when it is missing or has another shape.

use overglaze_stream::{TensorEntry, WeightSource};

use crate::Error;

/// The entry of the tensor `name`.
pub(crate) fn entry<'a>(
    source: &'a dyn WeightSource,
    name: &str,
) -> Result<&'a TensorEntry, Error> {
    let entry = source.entries().get(name);
    entry.ok_or_else(|| missing(source, name))
}

/// That the source has no tensor `name`, with the nearest name it has.
pub(crate) fn missing(source: &dyn WeightSource, name: &str) -> Error {
    Error::MissingTensor {
        file: source.label(),
        tensor: name.into(),
        hint: nearest(source, name),
    }
}

/// That the tensor `name` has another shape than `expected`.
pub(crate) fn wrong_shape(
    source: &dyn WeightSource,
    name: &str,
    entry: &TensorEntry,
    expected: String,
) -> Error {
    Error::WrongShape {
        file: source.label(),
        tensor: name.into(),
        found: entry.shape.clone(),
        expected,
    }
}

fn nearest(source: &dyn WeightSource, name: &str) -> String {
    let best = source.entries().keys().max_by(|a, b| {
        let score = |known: &str| strsim::normalized_levenshtein(name, known);
        score(a).total_cmp(&score(b))
    });
    best.map_or_else(String::new, |best| {
        format!("; the nearest name in it is `{best}`")
    })
}
